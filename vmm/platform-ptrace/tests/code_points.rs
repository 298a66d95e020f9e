//! Stop points and observing points.

use bloodhound_platform_ptrace::PtracePlatform;

bloodhound_platform_tests::platform_tests!(code_points, |cpu| PtracePlatform::new(cpu).unwrap());
