//! The switch program's P4Info, as the store checks rows against it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use p4runtime_proto::bytes::decode;
use p4runtime_proto::config::{Action, MatchField, P4Info, Table, action_ref, match_field};
use p4runtime_proto::p4info::{self, P4InfoError};
use thc_p4::rows::Row;
use thc_protocol::wire::Form;

use super::entry::Entry;

/// The output of `make p4`; that for BMv2 differs only in the forms that the program supports.
const BUILT_IN: &[u8] = thc_p4::P4INFO_BINARY;

/// The switch program, with the numbers that its P4Info gives to things.
#[derive(Debug)]
pub struct Program {
    /// The P4Info as it was compiled.
    pub info: P4Info,
    /// The tables by id.
    pub tables: BTreeMap<u32, MatchTable>,
    /// The actions by id.
    pub actions: BTreeMap<u32, ActionInfo>,
    /// Cells by counter.
    pub counters: BTreeMap<u32, Counter>,
    /// The tables that mean something here.
    pub known: Known,
    /// The number of jobs with counters of their own.
    pub indices: u16,
}

/// Numbers of the tables whose rows change what is forwarded.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// `jobs`
    pub jobs: u32,
    /// `members`
    pub members: u32,
    /// `addresses`
    pub addresses: u32,
    /// `job_tables`
    pub job_tables: u32,
    /// `lookup`
    pub lookup: u32,
    /// `control_plane`
    pub control_plane: u32,
    /// `own_address`
    pub own_address: u32,
}

/// A field of a key or a parameter of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramField {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its width.
    pub bits: u32,
}

/// A table; all its keys match exactly.
#[derive(Clone, Debug)]
pub struct MatchTable {
    /// Its name.
    pub name: String,
    /// Its key.
    pub fields: Vec<ProgramField>,
    /// Actions, and where they may be.
    pub actions: Vec<ActionUse>,
    /// True if its default action is fixed.
    pub const_default: bool,
    /// The default action that it starts with.
    pub default: Entry,
    /// Rows that fit.
    pub size: usize,
}

/// The entries of a table for which an action may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionUse {
    /// The action's number.
    pub id: u32,
    /// True if it may be that of a row.
    pub in_rows: bool,
    /// True if it may be the default.
    pub as_default: bool,
}

/// An action.
#[derive(Clone, Debug)]
pub struct ActionInfo {
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub params: Vec<ProgramField>,
}

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The meaning of its cells.
    pub kind: CounterKind,
    /// The number of cells.
    pub size: u32,
}

/// The program's counters (docs/switch.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// job ++ worker
    Packets,
    /// job ++ worker ++ reason
    Drops,
    /// reason
    Carrier,
    /// job ++ worker ++ event
    Events,
    /// job ++ answer
    Answers,
}

/// The table whose rows name a form, and the annotation that lists the supported forms.
const LOOKUP: &str = "lookup";
const FORMS: &str = "forms";
const JOBS: &str = "jobs";
const ROOM: &str = "room";

/// Says in a P4Info which forms there are.
pub fn set_forms(info: &mut P4Info, forms: &str) {
    let lookup = info.tables.iter_mut().find(|table| table.name() == LOOKUP);
    lookup.into_iter().for_each(|table| table.annotate(FORMS, forms));
}

/// Makes room for IPv6 addresses of members and of the server itself, since addresses in switches have 32
/// bits.
pub fn set_addresses(info: &mut P4Info) {
    const ADDRESS: &str = "address";
    const BITS: i32 = 128;
    for action in
        info.actions.iter_mut().filter(|action| ["set_member", "set_address"].contains(&action.name()))
    {
        action
            .params
            .iter_mut()
            .filter(|param| param.name == ADDRESS)
            .for_each(|param| param.bitwidth = BITS);
    }
    for table in info.tables.iter_mut().filter(|table| table.name() == "own_address") {
        let fields = table.match_fields.iter_mut().filter(|field| field.name == ADDRESS);
        fields.for_each(|field| field.bitwidth = BITS);
    }
}

/// Says for what this server's ports have room (P41); an empty text says nothing.
pub fn set_room(info: &mut P4Info, room: &str) {
    let jobs = info.tables.iter_mut().find(|table| table.name() == JOBS);
    jobs.into_iter().for_each(|table| table.annotate(ROOM, room));
}

static PROGRAM: LazyLock<Program> = LazyLock::new(|| {
    // Built in, and a test reads it.
    Program::load(BUILT_IN).unwrap_or_else(|error| panic!("the P4Info built into this program: {error}"))
});

fn missing(kind: &'static str, name: &str) -> P4InfoError {
    P4InfoError::Missing { kind, name: name.to_owned() }
}

fn action_info(action: &Action) -> ActionInfo {
    let params = action.params.iter();
    let params =
        params.map(|p| ProgramField { id: p.id, name: p.name.clone(), bits: p.bitwidth.max(0) as u32 });
    ActionInfo { name: action.name().to_owned(), params: params.collect() }
}

fn match_table(table: &Table, actions: &BTreeMap<u32, ActionInfo>) -> Result<MatchTable, P4InfoError> {
    let exact = Some(match_field::Match::MatchType(match_field::MatchType::Exact.into()));
    let field = |field: &MatchField| {
        if field.r#match != exact {
            return Err(missing("exact match for", &field.name));
        }
        let bits = field.bitwidth.max(0) as u32;
        Ok(ProgramField { id: field.id, name: field.name.clone(), bits })
    };
    let scope = |scope| scope == action_ref::Scope::TableAndDefault;
    let uses = table.action_refs.iter().map(|action| ActionUse {
        id: action.id,
        in_rows: scope(action.scope()) || action.scope() == action_ref::Scope::TableOnly,
        as_default: scope(action.scope()) || action.scope() == action_ref::Scope::DefaultOnly,
    });
    let call = table.initial_default_action.as_ref();
    let action = call.map_or(table.const_default_action_id, |call| call.action_id);
    let argument = |param: &ProgramField| {
        let given = call?.arguments.iter().find(|argument| argument.param_id == param.id)?;
        decode(&given.value, param.bits)
    };
    let params = actions.get(&action).map_or(&[][..], |action| &action.params);
    let params: Option<Vec<u128>> = params.iter().map(argument).collect();
    let params = params.ok_or_else(|| missing("default action of", table.name()))?;
    Ok(MatchTable {
        name: table.name().to_owned(),
        fields: table.match_fields.iter().map(field).collect::<Result<_, _>>()?,
        actions: uses.collect(),
        const_default: table.const_default_action_id != 0,
        default: Entry { action, params, ..Entry::default() },
        size: table.size.max(0) as usize,
    })
}

impl Program {
    /// The program that this server behaves like.
    #[must_use]
    pub fn get() -> &'static Program {
        &PROGRAM
    }

    fn load(info: &[u8]) -> Result<Program, P4InfoError> {
        let mut info = p4info::parse(info)?;
        set_forms(&mut info, &Form::ALL.map(|form| form.to_string()).join(" "));
        set_addresses(&mut info);
        // A socket is no port: packets for the controller have no header here.
        info.controller_packet_metadata.clear();
        let actions = info.actions.iter().map(|action| (action.id(), action_info(action))).collect();
        let table = |table| match_table(table, &actions).map(|found| (table.id(), found));
        let tables = info.tables.iter().map(table).collect::<Result<_, P4InfoError>>()?;
        let mut counters = BTreeMap::new();
        for (name, kind) in [
            ("packets", CounterKind::Packets),
            ("drops", CounterKind::Drops),
            ("carrier", CounterKind::Carrier),
            ("events", CounterKind::Events),
            ("answers", CounterKind::Answers),
        ] {
            let counter = info.counter(name)?;
            counters.insert(counter.id(), Counter { kind, size: counter.size.max(0) as u32 });
        }
        let known = Known {
            jobs: info.table("jobs")?.id(),
            members: info.table("members")?.id(),
            addresses: info.table("addresses")?.id(),
            job_tables: info.table("job_tables")?.id(),
            lookup: info.table("lookup")?.id(),
            control_plane: info.table("control_plane")?.id(),
            own_address: info.table("own_address")?.id(),
        };
        let mut program = Program { info, tables, actions, counters, known, indices: 0 };
        program.check_parameters()?;
        let index = program.action("set_job").and_then(|(_, action)| {
            action.params.iter().find(|param| param.name == "index").map(|param| param.bits)
        });
        program.indices = 1 << index.unwrap_or(0).min(15);
        Ok(program)
    }

    /// Checks that the actions have the parameters that rows are read by.
    fn check_parameters(&self) -> Result<(), P4InfoError> {
        for (name, params) in [
            ("set_job", "index cookie epoch workers quorum skip data_slots norm_slots group"),
            ("set_member", "address udp_port"),
            ("set_address", "address udp_port"),
            ("set_values", "values width lane"),
        ] {
            let action = self.actions.values().find(|action| action.name == name);
            let action = action.ok_or_else(|| missing("action", name))?;
            for param in params.split(' ') {
                if !action.params.iter().any(|known| known.name == param) {
                    return Err(missing("parameter", param));
                }
            }
        }
        Ok(())
    }

    /// The forms of packets that this server does, as its P4Info has them.
    #[must_use]
    pub fn forms(&self) -> &str {
        self.info.table(LOOKUP).ok().and_then(|table| table.annotation(FORMS)).unwrap_or_default()
    }

    /// An action by its name.
    #[must_use]
    pub fn action(&self, name: &str) -> Option<(u32, &ActionInfo)> {
        self.actions.iter().find(|(_, action)| action.name == name).map(|(&id, action)| (id, action))
    }

    /// A parameter of an entry's action; 0 if the action has none of the name.
    #[must_use]
    pub fn param(&self, entry: &Entry, name: &str) -> u128 {
        let params = self.actions.get(&entry.action).map_or(&[][..], |action| &action.params);
        let place = params.iter().position(|param| param.name == name);
        place.and_then(|place| entry.params.get(place)).copied().unwrap_or(0)
    }

    /// The number of a row's table, and its key, in the order of the table's fields.
    #[must_use]
    pub fn place<R: Row>(&self, row: &R) -> (u32, Vec<u128>) {
        let values = row.key();
        let value =
            |field: &ProgramField| values.iter().find(|(name, _)| *name == field.name).map_or(0, |(_, v)| *v);
        let table = self.tables.iter().find(|(_, table)| table.name == R::TABLE);
        table.map_or((0, Vec::new()), |(&id, table)| (id, table.fields.iter().map(value).collect()))
    }

    /// An entry of an action with these parameters by name; others are 0.
    #[must_use]
    pub fn entry(&self, action: &str, values: &[(&str, u128)]) -> Entry {
        let Some((id, action)) = self.action(action) else { return Entry::default() };
        let value =
            |param: &ProgramField| values.iter().find(|(name, _)| *name == param.name).map_or(0, |(_, v)| *v);
        Entry { action: id, params: action.params.iter().map(value).collect(), ..Entry::default() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_program_is_read() {
        let program = Program::load(BUILT_IN).unwrap();
        assert_eq!(program.tables.len(), program.info.tables.len());
        assert_eq!(
            program.info.table(LOOKUP).unwrap().annotation(FORMS).unwrap().split(' ').count(),
            Form::ALL.len()
        );
        let jobs = &program.tables[&program.known.jobs];
        assert_eq!((jobs.name.as_str(), jobs.const_default), ("jobs", true));
        assert_eq!(jobs.fields, [ProgramField { id: 1, name: "job".into(), bits: 16 }]);
        let passes = program.tables.values().find(|table| table.name == "passes").unwrap();
        assert_eq!((passes.const_default, &passes.default.params[..]), (false, &[510][..]));
        let job = program.entry("set_job", &[("cookie", 7), ("group", 9)]);
        assert_eq!((program.param(&job, "cookie"), program.param(&job, "group")), (7, 9));
        assert_eq!(program.param(&job, "epoch"), 0);
        // Each job has counters of its own.
        assert!(jobs.size >= 16);
        assert_eq!(usize::from(program.indices), jobs.size);
    }

    #[test]
    fn a_program_of_another_kind_is_refused() {
        assert!(Program::load(b"").is_err());
        let text = std::str::from_utf8(thc_p4::P4INFO).unwrap();
        let error = Program::load(text.replace("\"udp_port\"", "\"port\"").as_bytes()).unwrap_err();
        assert!(error.to_string().contains("udp_port"), "{error}");
        assert!(Program::load(text.replace("EXACT", "LPM").as_bytes()).is_err());
    }
}
