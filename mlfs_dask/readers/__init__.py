"""Parts that formats of files share: the interface of readers, three engines, and labels."""
