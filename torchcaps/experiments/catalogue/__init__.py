"""The experiments of the package: every module here registers one."""
