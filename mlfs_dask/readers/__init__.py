"""What formats of files share: the interface of readers, three engines, labels, and detection of the format."""
