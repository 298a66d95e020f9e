//! Every kind of trap.

use bloodhound_platform_kvm::KvmPlatform;

bloodhound_platform_tests::platform_tests!(
    traps,
    |cpu| KvmPlatform::new(cpu).unwrap(),
    unless bloodhound_platform_tests::no_kvm()
);
