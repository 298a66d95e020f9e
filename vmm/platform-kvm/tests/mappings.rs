//! Mappings, copy-on-write, eviction.

use bloodhound_platform_kvm::KvmPlatform;

bloodhound_platform_tests::platform_tests!(
    mappings,
    |cpu| KvmPlatform::new(cpu).unwrap(),
    unless bloodhound_platform_tests::no_kvm()
);
