"""Parts shared by all files of the package: JSON, digests, redaction of secrets, scratch arrays."""
