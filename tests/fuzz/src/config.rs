//! Configuration files: refused with a line, or sound.

use thc_protocol::Cookie;
use thc_protocol::wire::Welcome;

/// Of thc-ps.
pub fn server(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut options = match thc_ps::ServerOptions::parse(text) {
        Ok(options) => options,
        Err(error) => return one_line(&error),
    };
    // No files of this machine.
    if let Some(p4runtime) = &mut options.p4runtime {
        p4runtime.tls = None;
    }
    // To choose a table takes a tenth of a second and depends on nothing that a file says but small numbers.
    for job in options.job.iter_mut().filter(|job| job.granularity.is_none() && job.fraction.is_none()) {
        job.granularity = Some((1 << job.bits.unwrap_or(4).min(4)) - 1);
        job.fraction = Some(thc_ps::Fraction(1.0 / 32.0));
    }
    let config = match options.validate() {
        Ok(config) => config,
        Err(error) => return one_line(&error),
    };
    assert!(config.shards >= 1);
    assert!(!config.jobs.is_empty() || config.p4runtime.is_some());
    let mut memory = 0;
    for (place, setup) in config.jobs.iter().enumerate() {
        let job = &setup.config;
        job.check().unwrap();
        setup.welcome.tables.iter().for_each(|table| job.check_sum(&table.into()).unwrap());
        assert_ne!(job.cookie, Cookie(0));
        assert!(config.jobs[..place].iter().all(|other| other.config.job != job.job));
        memory += job.memory_of_all(config.shards);
        // A worker can use what it will be told.
        let welcome = Welcome { session: Cookie(1), nonce: 2, ..setup.welcome };
        let told = Welcome::parse(&welcome.to_bytes()).expect("it is welcome");
        assert!((told.data_slots, told.norm_slots) == (job.data_slots, job.norm_slots));
        assert_eq!(told.tables, setup.welcome.tables);
    }
    assert!(memory <= config.memory_limit);
    // A server started again with the same file is the same server.
    let again = options.validate().expect("it was good before");
    for (one, other) in config.jobs.iter().zip(&again.jobs) {
        assert_eq!(one.config, other.config);
        assert_eq!(one.welcome.to_bytes(), other.welcome.to_bytes());
    }
}

/// Of thc-controller.
pub fn controller(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut options = match thc_controller::Options::parse(text) {
        Ok(options) => options,
        Err(error) => return one_line(&error),
    };
    // No files of this machine.
    options.controller.tls = None;
    options.target.truncate(3);
    for target in &mut options.target {
        for file in
            [&mut target.p4info, &mut target.device_config, &mut target.ca, &mut target.cert, &mut target.key]
        {
            *file = None;
        }
    }
    match options.validate() {
        Ok(config) => {
            assert!(!config.targets.is_empty());
            assert!(config.targets.iter().all(|target| (1..=64).contains(&target.shards)));
            assert_eq!(config.jobs.len(), options.job.len());
        }
        Err(error) => one_line(&error),
    }
}

fn one_line(error: &impl std::fmt::Display) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
}
