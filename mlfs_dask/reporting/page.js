"use strict";
// Without this script the page is whole; with it the tables sort by their columns.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const headers = [...table.tHead.rows[0].cells];
  if (body.rows.length < 2) continue;
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const ascending = header.getAttribute("aria-sort") !== "ascending";
      for (const other of headers) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const sign = ascending ? 1 : -1;
      const rows = [...body.rows].map((row) => [row.cells[column].dataset.value, row]);
      const numeric = rows.every(([value]) => value === "" || Number.isFinite(Number(value)));
      // What has no value stays below, whichever way the others go.
      rows.sort(([a], [b]) => {
        if (a === "" || b === "") return (a === "") - (b === "");
        return sign * (numeric ? a - b : a.localeCompare(b, undefined, { numeric: true }));
      });
      body.append(...rows.map(([, row]) => row));
    });
  });
}
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
