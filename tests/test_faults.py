"""The table of faults in `docs/howto/cluster.md`: every row has tests that make the fault and see what comes of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent

#: First column of the table -> tests.
ROWS = {
    "a worker is killed": (
        "cluster/test_network_faults.py::test_a_worker_is_killed_and_another_one_unplugged_for_a_moment",
        "cluster/test_workers.py::test_a_worker_that_is_started_again_at_its_address_is_another_process",
        "engine/test_readings.py::test_a_worker_that_dies_once_goes_unnoticed",
    ),
    "a worker is silent during a pass": ("cluster/test_workers.py::test_a_worker_that_is_frozen_in_a_pass",),
    "a worker does not answer before it gets a task": ("cluster/test_workers.py::test_a_frozen_worker_is_left_out",),
    "a worker has other code or libraries, or cannot load them": (
        "cluster/test_workers.py::test_workers_with_other_code_or_without_what_they_need_get_no_task",
        "cluster/test_workers.py::test_a_worker_whose_compiler_does_not_load",
        "cluster/test_workers.py::test_a_pass_is_not_repeated_for_ever",
    ),
    "a worker does not see the store": ("cluster/test_workers.py::test_a_worker_that_does_not_see_the_store",),
    "a worker joins late": ("engine/test_readings.py::test_a_worker_that_joins_in_a_pass_gets_its_share",),
    "a host is cut off": ("cluster/test_network_faults.py::test_a_host_is_frozen_and_another_one_cut_off",),
    "the network fails for a moment": (
        "cluster/test_network_faults.py::test_a_worker_is_killed_and_another_one_unplugged_for_a_moment",
    ),
    "workers die on the same partitions, four times": (
        "engine/test_readings.py::test_a_part_that_always_kills_its_worker_is_explained",
    ),
    "all workers are gone": ("engine/test_readings.py::test_a_cluster_that_has_lost_every_worker_is_given_up_in_time",),
    "fewer workers than `--min-workers`": ("cluster/test_connect.py::test_min_workers_are_waited_for",),
    "the scheduler is gone": (
        "engine/test_readings.py::test_a_scheduler_that_is_restarted_is_no_loss_of_workers",
        "cluster/test_network_faults.py::test_a_certificate_of_another_authority_then_a_lost_scheduler_then_the_way_on",
    ),
    "a certificate of another authority": (
        "cluster/test_network_faults.py::test_a_certificate_of_another_authority_then_a_lost_scheduler_then_the_way_on",
    ),
    "the server of the store is throttled, or does not answer": (
        "cli/test_store_faults.py::test_a_server_that_refuses_for_a_while",
        "cli/test_store_faults.py::test_a_server_that_refuses_for_good",
    ),
    "the store may not be read": (
        "cli/test_store_faults.py::test_workers_say_what_a_server_refuses",
        "cli/test_permissions.py::test_a_store_that_may_not_be_read",
    ),
    "the store is damaged, or replaced while it is read": (
        "cli/test_damage.py::test_no_ranking_of_a_damaged_store",
        "storage/test_damage.py::test_a_store_that_is_replaced_while_it_is_read",
    ),
    "a checkpoint is damaged": ("engine/test_checkpoints.py::test_no_flipped_bit_and_no_cut_gives_another_state",),
    "the disk is full where a checkpoint goes": ("engine/test_checkpoints.py::test_a_full_disk_does_not_end_the_job",),
    "the disk is full where the result goes": (
        "cli/test_bad_input.py::test_a_full_disk",
        "cli/test_quiet_faults.py::test_a_disk_that_is_full_where_workers_write",
    ),
    "Ctrl-C": (
        "cli/test_local.py::test_ctrl_c_ends_a_pass_at_its_next_blocks_and_can_be_resumed",
        "cli/test_local.py::test_a_signal_while_local_workers_start_is_answered_once",
    ),
    "SIGTERM, or SIGHUP of a terminal that is closed": (
        "engine/test_checkpoints.py::test_a_command_that_is_terminated_saves_its_state",
        "cli/test_main.py::test_a_loop_that_saves_its_state_at_sigterm_is_not_waited_for_without_end",
    ),
}


def test_every_row_of_the_table_has_tests() -> None:
    page = (TESTS.parent / "docs" / "howto" / "cluster.md").read_text()
    table = page.partition("| fault |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)[1:] == list(ROWS)
    for test in {test for tests in ROWS.values() for test in tests}:
        file, _, name = test.partition("::")
        nodes = ast.parse((TESTS / file).read_text()).body
        assert name in {node.name for node in nodes if isinstance(node, ast.FunctionDef)}, test
