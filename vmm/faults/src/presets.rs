//! Presets: how often each kind of faults is, by one word. One table, by the names of keys, whose texts are read as if they were written; so a
//! kind that is not in it stays off.
//!
//! Key type: [`Preset`]. What a preset does besides, its budget, is declared with the section `faults` (`bloodhound-config`).

use bloodhound_declare::words;

words! {
    /// How hard a stack is tried.
    pub enum Preset as "FaultPreset" {
        Gentle = "gentle": "what happens in any data center in a week: some lost and late packets, now and then a service that crashes, is stopped or stands still, one at a time",
        Jepsen = "jepsen": "what the tests of distributed databases do: partitions of most shapes, crashes, pauses, machines without power and clocks that jump or drift, at most a minority down at the same time",
        Brutal = "brutal": "more kinds, often and together, slow disks and rare behaviour of the kernel among them, at most a minority down at the same time: what a correct system survives, and is slow at",
    }
}

/// For each key, what it is in the presets, in their order.
///
/// Nothing here may lie: a disk that loses or changes what it has acknowledged, a fault that takes down more than a budget of nodes. No
/// consensus protocol promises to survive that, so such kinds are named one by one.
const TABLE: &[(&str, [&str; 3])] = &[
    ("drop_rate", ["0.001", "0.005", "0.03"]),
    ("delay_rate", ["0.005", "0.01", "0.05"]),
    ("delay_ms", ["20", "50", "200"]),
    ("jitter_ms", ["1", "2", "10"]),
    ("corrupt_rate", ["0", "0.001", "0.005"]),
    ("duplicate_rate", ["0.001", "0.005", "0.02"]),
    ("reorder_rate", ["0.001", "0.005", "0.02"]),
    ("dns_fail_rate", ["0", "0", "0.005"]),
    ("reset_probability", ["0.0001", "0.0005", "0.002"]),
    ("partition_probability", ["0", "0.001", "0.002"]),
    ("partition_duration_ms", ["[500, 2000]", "[1000, 10000]", "[500, 10000]"]),
    ("mtu_probability", ["0", "0", "0.0001"]),
    ("syn_drop_probability", ["0", "0", "0.0002"]),
    ("backlog_full_probability", ["0", "0", "0.0002"]),
    ("fin_drop_probability", ["0", "0", "0.0002"]),
    ("half_open_probability", ["0", "0", "0.0002"]),
    ("disk_slow_probability", ["0", "0", "0.0005"]),
    ("crash_probability", ["0.0001", "0.0005", "0.001"]),
    ("crash_restart_ms", ["[500, 2000]", "[500, 5000]", "[100, 8000]"]),
    ("pause_probability", ["0.0001", "0.0005", "0.001"]),
    ("pause_duration_ms", ["[50, 500]", "[100, 5000]", "[50, 8000]"]),
    ("power_failure_probability", ["0", "0.0002", "0.0005"]),
    ("power_restart_ms", ["[500, 2000]", "[500, 5000]", "[100, 8000]"]),
    ("stop_probability", ["0.0001", "0.0002", "0.0005"]),
    ("crash_loop_probability", ["0", "0", "0.0002"]),
    ("slow_probability", ["0", "0", "0.0002"]),
    ("starve_probability", ["0", "0", "0.0002"]),
    ("clock_jump_probability", ["0", "0.0002", "0.0005"]),
    ("clock_drift_probability", ["0", "0.0002", "0.0005"]),
    ("leap_second_probability", ["0", "0", "0.0001"]),
    ("clock_skew_ms", ["0", "0", "100"]),
    ("futex_wake_rate", ["0", "0", "0.001"]),
    ("short_read_rate", ["0.001", "0.005", "0.02"]),
    ("partial_send_rate", ["0.001", "0.005", "0.02"]),
    ("accept_reset_rate", ["0", "0.0005", "0.002"]),
    ("epoll_reorder_rate", ["0.001", "0.005", "0.02"]),
];

impl Preset {
    /// What a key is in the preset. `None`: nothing, as if it were not written.
    pub fn text(self, key: &str) -> Option<&'static str> {
        TABLE.iter().find(|(name, _)| *name == key).map(|(_, texts)| texts[self as usize])
    }
}

/// The table of docs/faults.md: what each key is in each preset.
pub fn presets_manual() -> String {
    let words: Vec<String> = Preset::ALL.iter().map(|preset| format!("`{}`", preset.as_str())).collect();
    let mut out = format!("| key | {} |\n|---|---|---|---|\n", words.join(" | "));
    for (key, texts) in TABLE {
        out.push_str(&format!("| `{key}` | {} |\n", texts.join(" | ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    /// The keys of a disk that lies, as their texts say.
    #[test]
    fn no_preset_has_a_disk_that_lies() {
        let keys = Kind::DECLARATIONS.iter().flat_map(|declaration| declaration.keys);
        let lies: Vec<&str> =
            keys.filter(|key| key.doc.contains("a disk that lies")).map(|key| key.name).collect();
        assert!(lies.contains(&"lost_write_rate"), "{lies:?}");
        assert!(TABLE.iter().all(|(name, _)| !lies.contains(name)));
    }

    #[test]
    fn presets_name_declared_keys_once() {
        let declared: Vec<&str> =
            Kind::DECLARATIONS.iter().flat_map(|declaration| declaration.keys).map(|key| key.name).collect();
        let mut names: Vec<&str> = TABLE.iter().map(|(name, _)| *name).collect();
        assert!(names.iter().all(|name| declared.contains(name)), "{names:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
        assert_eq!(Preset::Jepsen.text("crash_probability"), Some("0.0005"));
        assert_eq!(Preset::Jepsen.text("latency_ms"), None);
    }
}
