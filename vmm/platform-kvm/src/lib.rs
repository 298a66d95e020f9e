//! The KVM platform: application code in a virtual machine of our own.
