//! Many spaces on many threads.

use bloodhound_platform_ptrace::PtracePlatform;

bloodhound_platform_tests::platform_tests!(stress, |cpu| PtracePlatform::new(cpu).unwrap());
