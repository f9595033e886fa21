"""What all files of ours share: JSON, digests, names without secrets, scratch arrays."""
