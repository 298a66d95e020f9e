//! A thousand spaces leave no process and no descriptor behind. A binary of its own, as it counts what the process has.

use bloodhound_platform_ptrace::PtracePlatform;

bloodhound_platform_tests::platform_tests!(leaks, |cpu| PtracePlatform::new(cpu).unwrap());
