//! The pipeline configuration: there is one program, and a controller must name it.

use p4runtime_proto::config::P4Info;
use p4runtime_proto::v1::ForwardingPipelineConfig;
use tonic::Code;

use super::refusal::{Refusal, refuse};
use crate::rows::{Program, set_addresses, set_forms, set_room};

/// The built-in program by itself, for static jobs.
#[must_use]
pub fn built_in() -> ForwardingPipelineConfig {
    let p4info = Some(Program::get().info.clone());
    ForwardingPipelineConfig { p4info, ..ForwardingPipelineConfig::default() }
}

/// Checks a configuration.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub fn verify(config: Option<ForwardingPipelineConfig>) -> Result<ForwardingPipelineConfig, Refusal> {
    let Some(mut config) = config else { return refuse(Code::InvalidArgument, "the config is missing") };
    let Some(info) = &config.p4info else { return refuse(Code::InvalidArgument, "the P4Info is missing") };
    if let Some(difference) = difference(&Program::get().info, info) {
        return refuse(
            Code::InvalidArgument,
            format!("the P4Info is not that of this server (p4/build/thc.p4info.txtpb): {difference}"),
        );
    }
    let device_config = config.p4_device_config.trim_ascii_start();
    if !config.p4_device_config.is_empty() && !device_config.starts_with(b"{") {
        return refuse(Code::InvalidArgument, "leave p4_device_config empty, or give BMv2's JSON");
    }
    // The server supports more forms than the switch for which the P4Info was compiled.
    if let Some(info) = &mut config.p4info {
        set_forms(info, Program::get().forms());
        info.controller_packet_metadata.clear();
    }
    Ok(config)
}

/// The first difference between a P4Info and ours that matters for requests, in tables, actions or counters.
/// Forms, room and the width of addresses do not matter.
fn difference(ours: &P4Info, theirs: &P4Info) -> Option<String> {
    let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
    for info in [&mut ours, &mut theirs] {
        set_forms(info, "");
        set_room(info, "");
        set_addresses(info);
    }
    fn compare<T: PartialEq>(
        kind: &str,
        ours: &[T],
        theirs: &[T],
        id: impl Fn(&T) -> (u32, String),
    ) -> Option<String> {
        let find = |all: &[T], wanted: u32| all.iter().position(|one| id(one).0 == wanted);
        for one in ours {
            let (number, name) = id(one);
            match find(theirs, number) {
                None => return Some(format!("it lacks the {kind} {name} ({number})")),
                Some(place) if theirs[place] != *one => {
                    return Some(format!("the {kind} {name} ({number}) is another"));
                }
                Some(_) => {}
            }
        }
        let extra = theirs.iter().map(&id).find(|(number, _)| find(ours, *number).is_none());
        extra.map(|(number, name)| format!("it has a {kind} {name} ({number}) that this server lacks"))
    }
    compare("table", &ours.tables, &theirs.tables, |table| (table.id(), table.name().to_owned()))
        .or_else(|| {
            let id = |action: &p4runtime_proto::config::Action| (action.id(), action.name().to_owned());
            compare("action", &ours.actions, &theirs.actions, id)
        })
        .or_else(|| {
            let id = |counter: &p4runtime_proto::config::Counter| (counter.id(), counter.name().to_owned());
            compare("counter", &ours.counters, &theirs.counters, id)
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn config(info: P4Info, device: &[u8]) -> Option<ForwardingPipelineConfig> {
        Some(ForwardingPipelineConfig { p4info: Some(info), p4_device_config: device.to_vec(), cookie: None })
    }

    fn own_p4info() -> P4Info {
        Program::get().info.clone()
    }

    #[test]
    fn the_device_config_is_that_of_bmv2_or_nothing() {
        for text in [&b""[..], b"\n {\"program\": 1}"] {
            assert!(verify(config(own_p4info(), text)).is_ok());
        }
        for text in [&b"lane = 8"[..], b"\xff\xfe", b" "] {
            assert_eq!(verify(config(own_p4info(), text)).unwrap_err().code, Code::InvalidArgument);
        }
    }

    #[test]
    fn another_program_is_named_by_its_first_difference() {
        let says = |change: &dyn Fn(&mut P4Info)| {
            let mut info = own_p4info();
            change(&mut info);
            verify(config(info, b"")).unwrap_err().message
        };
        assert!(says(&|info| *info = P4Info::default()).contains("lacks the table racks"));
        assert!(says(&|info| info.tables[0].size = 17).contains("the table racks (42170170) is another"));
        assert!(says(&|info| info.actions.truncate(3)).contains("lacks the action"));
        assert!(
            says(&|info| {
                let mut more = info.counters[0].clone();
                more.preamble.as_mut().unwrap().id = 5;
                info.counters.push(more);
            })
            .contains("has a counter packets (5) that this server lacks")
        );
        assert_eq!(verify(None).unwrap_err().code, Code::InvalidArgument);
        assert!(
            verify(Some(ForwardingPipelineConfig::default()))
                .unwrap_err()
                .message
                .contains("P4Info is missing")
        );
        // Its forms are its own, whatever program it gets.
        let mut info = own_p4info();
        set_forms(&mut info, "4/8");
        assert_eq!(verify(config(info, b"")).unwrap().p4info, Some(own_p4info()));
        // Registers are not served, and so may be as they like.
        let mut info = own_p4info();
        info.registers.clear();
        assert!(verify(config(info, b"")).is_ok());
    }
}
