//! Loops without side effects.

use bloodhound_platform_ptrace::PtracePlatform;

bloodhound_platform_tests::platform_tests!(spin, |cpu| PtracePlatform::new(cpu).unwrap());
