//! What links do to packets during the phase of faults: one function per kind, which puts its setting into the configuration of a
//! link. The fabric (`bloodhound-net`) carries it out, with a choice per packet.

use bloodhound_faults::{FaultSpec, Kind, Setting, link_kinds};
use bloodhound_net::LinkConfig;

/// A reordered packet is late by up to so many latencies.
const REORDER_LATENCIES: u64 = 5;

macro_rules! functions {
    ($($kind:ident in $function:ident,)*) => {
        /// Puts all settings into a link.
        pub(super) fn apply(spec: &FaultSpec, link: &mut LinkConfig) {
            let plain = link.clone();
            $($function(spec.get(Kind::$kind), &plain, link);)*
        }
    };
}
link_kinds!(functions);

fn drop(setting: &Setting, _: &LinkConfig, link: &mut LinkConfig) {
    link.loss = setting.rate;
}

fn delay(setting: &Setting, _: &LinkConfig, link: &mut LinkConfig) {
    (link.delay, link.delay_max) = (setting.rate, setting.time.1);
}

fn latency(setting: &Setting, plain: &LinkConfig, link: &mut LinkConfig) {
    link.latency = plain.latency + setting.time.1;
}

fn jitter(setting: &Setting, plain: &LinkConfig, link: &mut LinkConfig) {
    link.jitter = plain.jitter.max(setting.time.1);
}

fn duplicate(setting: &Setting, _: &LinkConfig, link: &mut LinkConfig) {
    link.duplicate = setting.rate;
}

fn reorder(setting: &Setting, plain: &LinkConfig, link: &mut LinkConfig) {
    (link.reorder, link.reorder_delay) = (setting.rate, plain.latency * REORDER_LATENCIES);
}
