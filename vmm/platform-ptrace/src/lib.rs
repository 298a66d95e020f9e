//! The ptrace platform: application code in stub processes under PTRACE_SYSEMU.
