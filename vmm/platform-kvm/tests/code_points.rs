//! Stop points and observing points.

use bloodhound_platform_kvm::KvmPlatform;

bloodhound_platform_tests::platform_tests!(
    code_points,
    |cpu| KvmPlatform::new(cpu).unwrap(),
    unless bloodhound_platform_tests::no_kvm()
);
