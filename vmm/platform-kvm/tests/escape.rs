//! Code that tries to break out.

use bloodhound_platform_kvm::KvmPlatform;

bloodhound_platform_tests::platform_tests!(
    escape,
    |cpu| KvmPlatform::new(cpu).unwrap(),
    unless bloodhound_platform_tests::no_kvm()
);
