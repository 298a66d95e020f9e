//! Code that tries to break out.

use bloodhound_platform_ptrace::PtracePlatform;

bloodhound_platform_tests::platform_tests!(escape, |cpu| PtracePlatform::new(cpu).unwrap());
