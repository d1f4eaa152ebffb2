//! The controller's rows for what is configured: what its store would say, and what follows from that for a target.

use serde_json::{Value, json};
use thc_controller::{Options, Store, SwitchRows, TargetConfig, plan};
use thc_p4::rows::MemberRow;
use thc_protocol::TableId;
use thc_protocol::aggregator::{Level, Lookup};
use thc_protocol::wire::{Form, Table, Tables};
use thc_tests::traffic::frame::Mac;
use thc_tests::traffic::plant::{CONTROL_PORT, OWN, OWN_MAC, PlacedJob, Plant};
use thc_tests::traffic::racks::RACKS;

/// What a port may send to the controller in a second, of which a tenth is a burst: more than any test sends.
pub const CONTROL_RATE: u32 = 10_000_000;

/// The controller's configuration of a chip with these ports for passes.
pub fn target(p4info: &str, pass_ports: &[u16], stations: &[(Mac, u16)]) -> TargetConfig {
    let mac = |mac: &Mac| mac.map(|byte| format!("{byte:02x}")).join(":");
    let stations: String = stations
        .iter()
        .map(|(station, port)| format!("[[target.station]]\nmac = {:?}\nport = {port}\n", mac(station)))
        .collect();
    let text = format!(
        "[[target]]\nname = \"chip\"\naddress = \"127.0.0.1:1\"\nip = \"{}\"\nmac = \"{}\"\ncpu_port = {CONTROL_PORT}\n\
         control_rate = {CONTROL_RATE}\n\
         p4info = {p4info:?}\npass_ports = {pass_ports:?}\n{stations}",
        OWN.ip(),
        mac(&OWN_MAC),
    );
    Options::parse(&text).unwrap().validate().unwrap().targets.swap_remove(0)
}

fn job(placed: &PlacedJob) -> Value {
    let config = &placed.config;
    let tables: Vec<u8> = config.tables.iter().map(|table| table.0).collect();
    let members = |(&number, member): (&u8, &thc_tests::traffic::plant::Member)| {
        let said = json!({ "at": member.endpoint.addr, "mac": member.mac, "port": member.port, "nonce": 1 });
        (number.to_string(), said)
    };
    // With 1 bit any number of workers fits.
    let mut section = json!({
        "name": format!("job{}", config.job), "targets": ["chip"], "job": config.job.0, "cookie": 1, "bits": 1,
        "data_slots": config.data_slots, "norm_slots": config.norm_slots,
    });
    let mut root_ports = 0;
    if let (Level::Rack { rack, root, ports, .. }, Some(member)) = (config.level, placed.root) {
        let racks = ["3".to_owned(), format!("{}/{}", config.quorum, config.workers), "2".to_owned()];
        assert_eq!(racks.len(), usize::from(RACKS.count));
        let mac = member.mac.map(|byte| format!("{byte:02x}")).join(":");
        section["racks"] = json!(racks);
        section["rack"] = rack.0.into();
        section["root"] = root.addr.to_string().into();
        section["root_mac"] = mac.into();
        root_ports = ports;
    } else {
        section["workers"] = config.workers.into();
        section["quorum"] = config.quorum.into();
    }
    json!({
        "spec": { "section": section },
        "serial": 1, "tables": tables, "given": {}, "active": null, "created": 0,
        "places": { "chip": {
            "index": placed.index, "data_base": placed.data_base, "norm_base": placed.norm_base,
            "group": placed.group(), "sessions": 1,
            "session": {
                "cookie": config.cookie.0, "epoch": placed.epoch, "root_ports": root_ports,
                "members": placed.members.iter().map(members).collect::<serde_json::Map<_, _>>(),
            },
        } },
    })
}

/// The tables of a job. Their numbers are those that the store has.
fn tables(plant: &Plant, placed: &PlacedJob) -> Tables {
    let unknown = Lookup { form: Form::USUAL, values: [0; 16] };
    let table = |(id, number): (&TableId, u8)| {
        let Lookup { form, values } = *plant.tables.get(&id.0).unwrap_or(&unknown);
        let (bits, fraction) = (form.width(), 0.03125);
        Table { id: TableId(number), bits, form, granularity: 30, fraction, t_p: 2.0, values }
    };
    Tables::new(&placed.config.tables.iter().zip(1..).map(table).collect::<Vec<_>>()).unwrap()
}

/// The controller's store.
fn store(plant: &Plant) -> Store {
    let name = |placed: &PlacedJob| format!("job{}", placed.config.job);
    let jobs = plant.jobs.iter().map(|placed| (name(placed), job(placed)));
    let numbers = plant.tables.keys().zip(0..).map(|(id, number): (_, u8)| (id.to_string(), number.into()));
    let mut store: Store = serde_json::from_value(json!({
        "jobs": jobs.collect::<serde_json::Map<_, _>>(),
        "tables": numbers.collect::<serde_json::Map<_, _>>(),
        "epoch": 1, "serial": 1,
    }))
    .unwrap();
    for placed in &plant.jobs {
        store.jobs.get_mut(&name(placed)).unwrap().spec.setup.welcome.tables = tables(plant, placed);
    }
    store
}

/// What the chip is to hold.
pub fn expected_rows(target: &TargetConfig, plant: &Plant) -> SwitchRows {
    let mut wanted = plan::target_rows(target, &store(plant), &plan::Exclusions::default()).unwrap();
    // A controller knows the port of every member; the program also has members that may send from any.
    for placed in &plant.jobs {
        for (&worker, member) in placed.members.iter().filter(|(_, member)| member.endpoint.ingress == 0) {
            let (job, at) = (placed.config.job.0, member.endpoint.addr);
            wanted.row(&target.schema, &MemberRow { job, worker, ingress_port: 0, at }).unwrap();
        }
    }
    wanted
}
