//! From what the controller remembers to the rows and groups that a target should hold.

use crate::config::TargetConfig;
use crate::error::ControllerError;
use crate::program::{Lookups, Passes, queue_rows, snake};
use crate::rack::RackPlace;
use crate::store::{Job, Placement, Session, Store};
use crate::switch_rows::{Copies, FLOOD, SwitchRows};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use thc_p4::rows::{
    AddressRow, ControlPlaneRow, ControlPortRow, JobRow, JobTableRow, LookupBytes, LookupRow,
    LoopbackPortRow, MemberRow, OwnAddressRow, OwnArpRow, PassRow, RackRow, RootRow, Row, SourceRow,
    StationAction, StationRow,
};
use thc_protocol::Lane;
use thc_protocol::aggregator::Shard;
use thc_protocol::wire::{Form, Kind, Table};

/// The answers of a root to its racks (P38).
const OF_ROOTS: [Kind; 6] =
    [Kind::Welcome, Kind::Pending, Kind::Refused, Kind::Bye, Kind::Description, Kind::Ask];
/// The number of a root's first port in `addresses`: workers have those below 64.
const FIRST_ROOT: u8 = 192;

/// Jobs and tables of which a target holds nothing, because it has refused their rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Numbers of jobs.
    pub jobs: BTreeSet<u16>,
    /// Ids of lookup tables.
    pub tables: BTreeSet<u8>,
}

/// Everything that this target should hold, without these jobs and tables.
///
/// # Errors
/// [`ControllerError::P4Info`] if the program lacks a table; [`ControllerError::Room`].
pub fn target_rows(
    target: &TargetConfig,
    store: &Store,
    but: &Exclusions,
) -> Result<SwitchRows, ControllerError> {
    let schema = &target.schema;
    let mut desired = SwitchRows::default();
    desired.row(schema, &OwnAddressRow { mac: target.mac, address: target.at.ip() })?;
    if target.at.is_ipv4() {
        desired.row(schema, &OwnArpRow { address: target.at.ip(), mac: target.mac })?;
    }
    // Packets to the aggregator of an unknown kind must not be flooded.
    desired.row(schema, &StationRow { mac: Some(target.mac), action: StationAction::Drop })?;
    desired.row(schema, &StationRow { mac: None, action: StationAction::Flood(FLOOD) })?;
    for &(mac, port) in &target.ports.stations {
        desired.row(schema, &StationRow { mac: Some(mac), action: StationAction::Port(port) })?;
    }
    let mut ports: Vec<u16> = target.ports.stations.iter().map(|&(_, port)| port).collect();
    ports.sort_unstable();
    ports.dedup();
    if target.ports.control_rate > 0 && schema.table(ControlPortRow::TABLE).is_ok() {
        for &port in &ports {
            desired.row(schema, &ControlPortRow { port, rate: target.ports.control_rate })?;
        }
    }
    desired.group(FLOOD, Copies(ports.into_iter().map(|port| (port, 0)).collect()));
    let rack =
        store.jobs.values().any(|job| job.spec.rack.is_some() && job.places.contains_key(&target.name));
    let of_roots = if rack { &OF_ROOTS[..] } else { &[] };
    for &kind in [Kind::Join, Kind::Leave].iter().chain(of_roots) {
        desired.row(schema, &ControlPlaneRow { kind: kind as u8, port: target.ports.cpu_port })?;
    }
    match target.program.passes {
        Passes::Ports { later } => {
            for (pass, port) in (1..=later).zip(snake(&target.ports.pass_ports)) {
                desired.row(schema, &PassRow { pass, port, cells: None })?;
            }
        }
        Passes::Cells { .. } => {
            for pass in queue_rows(&target.program.cells(&target.ports.pass_ports), target.ports.pass_queues)
            {
                desired.row(schema, &pass)?;
            }
        }
    }
    if target.program.source {
        desired.row(schema, &SourceRow { mac: target.mac, address: target.at.ip() })?;
    }
    if target.program.loopback {
        for &port in &target.ports.pass_ports {
            desired.row(schema, &LoopbackPortRow { port })?;
        }
    }
    let there = |table: &u8| !but.tables.contains(table);
    for (&id, &number) in store.tables.iter().filter(|(id, _)| there(id)) {
        if let Some(table) = store.table(id) {
            lookup(target, &mut desired, id, number, table)?;
        }
    }
    for job in store.jobs.values().filter(|job| !but.jobs.contains(&job.spec.number())) {
        if let Some(place) = job.places.get(&target.name) {
            for &table in &job.tables {
                let form = store.table(table).map(|table| table.form).unwrap_or_default();
                let on_chip = match target.program.lookups {
                    Lookups::Row => None,
                    Lookups::Bytes { .. } => Some((store.number_of_table(table), on_chip(form).1)),
                };
                desired.row(schema, &JobTableRow { job: job.spec.number(), table, on_chip })?;
            }
            match &place.session {
                None => desired.group(place.group, Copies::default()),
                Some(session) => self::session(target, &mut desired, job, place, session)?,
            }
        }
    }
    Ok(desired)
}

/// The form of a table's packets on a chip that looks up bytes, and whether they have half of a packet's words. Lanes of 16 bits
/// above indices of 4 are a rack's, whose own sums have 8 (P34).
fn on_chip(form: Form) -> (Form, bool) {
    match (form.width(), form.lane()) {
        (4, Lane::Bits16) => (Form::USUAL, true),
        (_, lane) => (form, lane == Lane::Bits4),
    }
}

fn lookup(
    target: &TargetConfig,
    desired: &mut SwitchRows,
    id: u8,
    number: u8,
    &Table { values, form, .. }: &Table,
) -> Result<(), ControllerError> {
    let schema = &target.schema;
    let Lookups::Bytes { room, bits } = &target.program.lookups else {
        return desired.row(schema, &LookupRow { table: id, values, form });
    };
    let (form, _) = on_chip(form);
    let lanes = 8 / u32::from(form.width()) * u32::from(form.lane().bits());
    // A job of other forms is not made there; a table may be of a job on another target.
    if !target.capacity.forms.is_some_and(|forms| forms.contains(form)) || i32::try_from(lanes) != Ok(*bits) {
        return Ok(());
    }
    if number >= *room {
        return Err(ControllerError::Room { target: target.name.clone(), table: id, room: *room });
    }
    desired.lookup(LookupBytes { number, values, form });
    Ok(())
}

fn session(
    target: &TargetConfig,
    desired: &mut SwitchRows,
    job: &Job,
    place: &Placement,
    session: &Session,
) -> Result<(), ControllerError> {
    let schema = &target.schema;
    let (number, config) = (job.spec.number(), job.spec.config());
    let mut copies = Vec::with_capacity(session.members.len());
    for (&worker, member) in &session.members {
        let (at, port) = (member.at, member.port);
        desired.row(schema, &MemberRow { job: number, worker, ingress_port: port, at })?;
        desired.row(schema, &AddressRow { job: number, worker, mac: member.mac, at })?;
        copies.push((port, u16::from(worker)));
    }
    copies.sort_unstable();
    desired.group(place.group, Copies(copies));
    if let Some(rack) = &job.spec.rack {
        rows_of_rack(target, desired, job, rack, session.root_ports.max(1))?;
    }
    desired.row(
        schema,
        &JobRow {
            job: number,
            index: place.index.into(),
            cookie: session.cookie.0,
            epoch: session.epoch,
            workers: config.workers,
            quorum: config.quorum,
            skip: config.skip,
            data_base: place.data_base,
            data_slots: config.data_slots,
            norm_base: place.norm_base,
            norm_slots: config.norm_slots,
            group: place.group,
        },
    )
}

/// The port of a rack's sums: that of the root that has the slot.
fn rows_of_rack(
    target: &TargetConfig,
    desired: &mut SwitchRows,
    job: &Job,
    rack: &RackPlace,
    ports: u8,
) -> Result<(), ControllerError> {
    let (schema, number, config) = (&target.schema, job.spec.number(), job.spec.config());
    let station = target.ports.stations.iter().find(|(mac, _)| *mac == rack.mac);
    // Without one the job has not been made.
    let port = station.map_or(0, |&(_, port)| port);
    desired.row(schema, &RackRow { job: number, rack: rack.number, racks: rack.sizes.len() as u8, port })?;
    let at = |place: u8| SocketAddr::from((rack.root.ip(), rack.root.port().wrapping_add(place.into())));
    for place in 0..ports {
        let worker = FIRST_ROOT + place;
        desired.row(schema, &AddressRow { job: number, worker, mac: rack.mac, at: at(place) })?;
    }
    let blocks = config.data_slots.max(config.norm_slots).div_ceil(Shard::BLOCK.into());
    for block in 0..blocks as u16 {
        let place = (block % u16::from(ports)) as u8;
        desired.row(schema, &RootRow { job: number, block, receiver: FIRST_ROOT + place, at: at(place) })?;
    }
    Ok(())
}
