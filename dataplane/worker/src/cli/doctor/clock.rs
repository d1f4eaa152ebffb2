//! The clock that time-outs go by.

use super::check::Check;
use super::host::Host;
use std::time::Instant;

const NAME: &str = "clock";
/// Clock sources that are read by an instruction or two, without a system call.
const FAST: [&str; 4] = ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"];
/// Nanoseconds; a reading that goes to the kernel takes several times as long.
const SLOW: u128 = 500;

/// `live`: the host is this one, and its clock can be read.
pub fn check(host: &Host, live: bool, dpdk: bool) -> Check {
    let source = host
        .read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_else(|| "unknown".to_owned());
    let took = live.then(measure_reading);
    if !FAST.contains(&source.as_str()) && took.is_none_or(|took| took > SLOW) {
        let there = host.read("/sys/devices/system/clocksource/clocksource0/available_clocksource");
        let found = format!("{source}{}, which takes a system call", format_reading(took));
        let mend = if there.is_some_and(|there| there.split(' ').any(|name| name == "tsc")) {
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource".to_owned()
        } else {
            "see in dmesg why the kernel distrusts the TSC; tsc=reliable on its command line overrides it"
                .to_owned()
        };
        return Check::warning(NAME, found, mend);
    }
    let flags = host.field("/proc/cpuinfo", "flags");
    let steady = flags.as_deref().is_none_or(|flags| flags.split(' ').any(|flag| flag == "constant_tsc"));
    if dpdk && !steady {
        return Check::warning(
            NAME,
            format!("{source}, and the processor's TSC changes its rate with the clock"),
            "keep the clock constant: cpupower frequency-set --governor performance",
        );
    }
    Check::ok(NAME, format!("{source}{}", format_reading(took)))
}

fn format_reading(took: Option<u128>) -> String {
    took.map_or(String::new(), |took| format!(", {took} ns a reading"))
}

/// Nanoseconds that a reading of the monotonic clock takes, the best of a few rounds.
fn measure_reading() -> u128 {
    const READINGS: u128 = 1000;
    let round = |_| {
        let start = Instant::now();
        for _ in 0..READINGS {
            std::hint::black_box(Instant::now());
        }
        start.elapsed().as_nanos() / READINGS
    };
    (0..5).map(round).min().unwrap_or(0)
}
