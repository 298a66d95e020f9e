//! What a trap costs: a system call through the platform against one of the smallest virtual machine that can take it,
//! in the same run (the figure that counts is the ratio), and what page faults, steps, spaces and vector state cost.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // measures host time

mod bare;

use bare::Bare;
use bloodhound_platform::Platform;
use bloodhound_platform_kvm::KvmPlatform;
use bloodhound_platform_tests::bench;

fn main() {
    // A measurement, no test: without the device there is nothing to measure.
    let platform = KvmPlatform::new(Some(0)).expect("a usable /dev/kvm");
    let mut guest = bench::calling(platform);
    println!("{:?}", guest.platform.abilities());
    let mut bare = Bare::new();
    // In turns, so that a busy host disturbs all alike; and in short rounds, so that some are not disturbed.
    let (mut exit_us, mut bare_us, mut ours_us) = (f64::MAX, f64::MAX, f64::MAX);
    for _ in 0..20 {
        exit_us = exit_us.min(bench::best(20, || bare.exit()));
        bare_us = bare_us.min(bench::best(20, || bare.system_call()));
        ours_us = ours_us.min(bench::best(20, || {
            guest.syscall();
            guest.regs.rax = 1;
        }));
    }
    println!("bare VM: out in ring 0                   {exit_us:7.2} us");
    println!("bare VM: system call in ring 3 and back  {bare_us:7.2} us");
    println!("system call through the platform         {ours_us:7.2} us   ratio {:.2}", ours_us / bare_us);
    bench::report(guest.end());
}
