//! Writes what is configured into BMv2, by its command line.

use super::switch::Switch;
use thc_protocol::aggregator::{Endpoint, Level, Lookup};
use thc_tests::traffic::frame::Mac;
use thc_tests::traffic::plant::{CONTROL_PORT, OWN, OWN_MAC, PORTS, Plant};

/// The group of all ports.
const FLOOD: u16 = 100;
/// The number of the root's first port in `addresses`.
const FIRST_ROOT: u16 = 192;

/// Writes everything into a fresh switch; `stations` are what it forwards to by MAC.
pub fn fresh(plant: &Plant, switch: &Switch, stations: &[(Mac, u16)]) {
    let mut commands = vec![
        // Nothing may get lost on the way to a next pass.
        "set_queue_depth 1000000".to_owned(),
        format!("table_add own_address set_ours {} {} =>", mac(OWN_MAC), OWN.ip()),
        format!("table_add own_arp answer_arp {} => {}", OWN.ip(), mac(OWN_MAC)),
        format!("mc_mgrp_create {FLOOD}"),
        format!("mc_node_create 0 {}", PORTS.map(|port| port.to_string()).join(" ")),
        format!("mc_node_associate {FLOOD} 0"),
        format!("table_set_default stations flood {FLOOD}"),
        format!("table_add stations drop {} =>", mac(OWN_MAC)),
    ];
    for &kind in &plant.control {
        commands.push(format!("table_add control_plane to_control {} => {CONTROL_PORT}", kind as u8));
    }
    // Whatever the ports, packets on their way to the same pass must stay in order.
    for pass in 1..8 {
        commands.push(format!("table_add passes set_pass_port {pass} => {}", 400 + pass % 3));
    }
    for &(station, port) in stations {
        commands.push(format!("table_add stations set_port {} => {port}", mac(station)));
    }
    let mut node = 1;
    for job in &plant.jobs {
        commands.push(format!("mc_mgrp_create {}", job.group()));
        for (number, member) in &job.members {
            commands.push(format!("mc_node_create {number} {}", member.port));
            commands.push(format!("mc_node_associate {} {node}", job.group()));
            node += 1;
        }
    }
    switch.commands(&commands);
}

/// Replaces what a controller changes while the switch runs. Groups stay as they are.
pub fn write(plant: &Plant, switch: &Switch) {
    let mut commands: Vec<String> =
        ["jobs", "racks", "roots", "members", "job_tables", "lookup", "addresses"]
            .map(|table| format!("table_clear {table}"))
            .to_vec();
    for (id, Lookup { form, values }) in &plant.tables {
        let digits: String = values.iter().map(|value| format!("{value:02x}")).collect();
        let (width, lane) = (form.width(), form.lane().bits());
        commands.push(format!("table_add lookup set_values {id} => 0x{digits} {width} {lane}"));
    }
    for job in &plant.jobs {
        let c = &job.config;
        commands.push(format!(
            "table_add jobs set_job {} => {} {:#x} {} {} {} {} {} {} {} {} {}",
            c.job,
            job.index,
            c.cookie.0,
            job.epoch,
            c.workers,
            c.quorum,
            u8::from(c.skip),
            job.data_base,
            c.data_slots,
            job.norm_base,
            c.norm_slots,
            job.group()
        ));
        if let (Level::Rack { racks, rack, ports, .. }, Some(root)) = (c.level, job.root) {
            let (to, base) = (root.endpoint.addr.ip(), root.endpoint.addr.port());
            commands
                .push(format!("table_add racks set_rack {} => {rack} {} {}", c.job, racks.count, root.port));
            for port in 0..u16::from(ports) {
                let (receiver, udp, mac) = (FIRST_ROOT + port, base + port, mac(root.mac));
                let row = format!("{} {receiver} => {mac} {to} {udp}", c.job);
                commands.push(format!("table_add addresses set_address {row}"));
            }
            for block in 0..c.data_slots.max(c.norm_slots).div_ceil(64) as u16 {
                let (receiver, udp) =
                    (FIRST_ROOT + block % u16::from(ports), base + block % u16::from(ports));
                let row = format!("{} {block} => {receiver} {to} {udp}", c.job);
                commands.push(format!("table_add roots set_root {row}"));
            }
        }
        for table in &c.tables {
            commands.push(format!("table_add job_tables allow_table {} {table} =>", c.job));
        }
        for (number, member) in &job.members {
            let Endpoint { ingress, addr } = member.endpoint;
            let (ip, udp) = (addr.ip(), addr.port());
            commands.push(format!("table_add members set_member {} {number} => {ingress} {ip} {udp}", c.job));
            commands.push(format!(
                "table_add addresses set_address {} {number} => {} {ip} {udp}",
                c.job,
                mac(member.mac)
            ));
        }
    }
    switch.commands(&commands);
}

fn mac(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
