//! What links do to packets during the phase of faults: one function per kind, which puts its setting into the configuration of a
//! link. The fabric (`bloodhound-net`) carries it out, with a choice per packet.

use bloodhound_faults::{FaultSpec, Kind, Setting, link_kinds};
use bloodhound_net::LinkConfig;

/// A reordered packet is late by up to so many latencies.
const REORDER_LATENCIES: u64 = 5;
/// 1000 bits.
const BYTES_OF_KBIT: u64 = 125;

macro_rules! functions {
    ($($kind:ident in $function:ident,)*) => {
        /// Puts all settings into a link.
        pub(super) fn apply(spec: &FaultSpec, link: &mut LinkConfig) {
            let plain = link.clone();
            $($function(spec.get(Kind::$kind), &plain, link);)*
        }

        /// Puts the setting of one kind into a link, on top of what is there.
        pub(super) fn apply_one(kind: Kind, setting: &Setting, link: &mut LinkConfig) {
            let plain = link.clone();
            match kind {
                $(Kind::$kind => $function(setting, &plain, link),)*
                _ => {}
            }
            keep_larger(&plain, link);
        }
    };
}
link_kinds!(functions);

/// Gives a link the larger of what it has and what it had.
fn keep_larger(before: &LinkConfig, link: &mut LinkConfig) {
    link.loss = link.loss.max(before.loss);
    (link.delay, link.delay_max) = (link.delay.max(before.delay), link.delay_max.max(before.delay_max));
    link.corrupt = link.corrupt.max(before.corrupt);
    link.duplicate = link.duplicate.max(before.duplicate);
    link.reorder = link.reorder.max(before.reorder);
    link.reorder_delay = link.reorder_delay.max(before.reorder_delay);
    link.corrupt_pass = link.corrupt_pass.max(before.corrupt_pass);
    link.bad_checksum = link.bad_checksum.max(before.bad_checksum);
}

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

fn corrupt(setting: &Setting, _: &LinkConfig, link: &mut LinkConfig) {
    link.corrupt = setting.rate;
}

fn duplicate(setting: &Setting, _: &LinkConfig, link: &mut LinkConfig) {
    link.duplicate = setting.rate;
}

fn reorder(setting: &Setting, plain: &LinkConfig, link: &mut LinkConfig) {
    (link.reorder, link.reorder_delay) = (setting.rate, plain.latency * REORDER_LATENCIES);
}

fn bandwidth(setting: &Setting, plain: &LinkConfig, link: &mut LinkConfig) {
    let asked = (setting.number > 0).then_some(setting.number * BYTES_OF_KBIT);
    link.bandwidth = plain.bandwidth.into_iter().chain(asked).min();
}

fn corrupt_pass(setting: &Setting, _: &LinkConfig, link: &mut LinkConfig) {
    link.corrupt_pass = setting.rate;
}

fn bad_checksum(setting: &Setting, _: &LinkConfig, link: &mut LinkConfig) {
    link.bad_checksum = setting.rate;
}

/// No packet of a question to the name server is on a link: `names` does it.
fn dns_fail(_: &Setting, _: &LinkConfig, _: &mut LinkConfig) {}

fn dns_delay(_: &Setting, _: &LinkConfig, _: &mut LinkConfig) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(spec: &FaultSpec) -> LinkConfig {
        let mut link = LinkConfig { jitter: 7, ..LinkConfig::default() };
        apply(spec, &mut link);
        link
    }

    #[test]
    fn without_faults_a_link_is_as_before() {
        let spec = Kind::DECLARATIONS.iter().fold(FaultSpec::default(), |mut spec, declaration| {
            spec.switch_off(declaration.kind);
            spec
        });
        let expected = LinkConfig {
            jitter: 7,
            delay_max: 50_000_000,
            reorder_delay: 1_000_000,
            ..LinkConfig::default()
        };
        assert_eq!(link(&spec), expected);
    }

    #[test]
    fn each_kind_has_its_place_in_a_link() {
        let spec = FaultSpec::default();
        assert_eq!(link(&spec.clone().with_rate(Kind::Drop, 5)).loss, 5);
        assert_eq!(link(&spec.clone().with_rate(Kind::Delay, 5).with_time(Kind::Delay, (9, 9))).delay_max, 9);
        assert_eq!(link(&spec.clone().with_time(Kind::Latency, (9, 9))).latency, 200_009);
        assert_eq!(link(&spec.clone().with_time(Kind::Jitter, (9, 9))).jitter, 9);
        assert_eq!(link(&spec.clone().with_rate(Kind::Duplicate, 5)).duplicate, 5);
        assert_eq!(link(&spec.clone().with_rate(Kind::Reorder, 5)).reorder, 5);
        assert_eq!(link(&spec.with_rate(Kind::BadChecksum, 5)).bad_checksum, 5);
    }

    #[test]
    fn a_link_has_the_lower_bandwidth() {
        let spec = FaultSpec::default().with_number(Kind::Bandwidth, 8);
        assert_eq!(link(&spec).bandwidth, Some(1000));
        assert_eq!(link(&FaultSpec::default()).bandwidth, None);
        let mut narrow = LinkConfig { bandwidth: Some(10), ..LinkConfig::default() };
        apply(&spec, &mut narrow);
        assert_eq!(narrow.bandwidth, Some(10));
        assert_eq!(link(&FaultSpec::default().with_rate(Kind::CorruptPass, 5)).corrupt_pass, 5);
    }

    #[test]
    fn a_window_comes_on_top() {
        let loss = |there, window| {
            let mut link = LinkConfig { loss: there, ..LinkConfig::default() };
            apply_one(Kind::Drop, &Setting { rate: window, ..Setting::default() }, &mut link);
            link.loss
        };
        assert_eq!((loss(5, 1), loss(1, 5)), (5, 5));
        let mut link = LinkConfig { delay: 5, delay_max: 9, latency: 10, ..LinkConfig::default() };
        apply_one(Kind::Delay, &Setting { rate: 7, time: (3, 3), ..Setting::default() }, &mut link);
        assert_eq!((link.delay, link.delay_max), (7, 9));
        apply_one(Kind::Latency, &Setting { time: (3, 3), ..Setting::default() }, &mut link);
        assert_eq!(link.latency, 13);
    }

    #[test]
    fn corrupted_packets_are_a_share_of_a_link() {
        assert_eq!(link(&FaultSpec::default().with_rate(Kind::Corrupt, 5)).corrupt, 5);
    }
}
