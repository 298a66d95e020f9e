//! A thousand spaces leave nothing behind. A binary of its own, as it counts what the process has.

use bloodhound_platform_kvm::KvmPlatform;

bloodhound_platform_tests::platform_tests!(
    leaks,
    |cpu| KvmPlatform::new(cpu).unwrap(),
    unless bloodhound_platform_tests::no_kvm()
);
