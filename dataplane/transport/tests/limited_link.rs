//! The UDP backend on a slow, narrow link: a veth device behind a token bucket, in a network
//! namespace of the test's own thread. Nobody answers at its far end. Needs root, `ip` and `tc`; without them the tests report
//! that they were not run.
#![allow(clippy::unwrap_used)]

use std::{
    io,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use thc_transport::{PacketIo, Peer, TransportError, UdpConfig, UdpIo};

const LOCAL: &str = "10.77.0.1:4000";
const REMOTE: &str = "10.77.0.2:4000";

/// Runs `test` in a thread whose only network is a device with `mtu` and `rate`.
fn on_link(mtu: &str, rate: &str, test: impl FnOnce(UdpIo, Peer) + Send + 'static) {
    let (mtu, rate) = (mtu.to_owned(), rate.to_owned());
    let body = move || {
        // SAFETY: unshare takes no pointers; it moves this thread alone to a new network
        // namespace, and the thread opens its sockets only afterwards.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            println!("not run: no network namespace: {}", io::Error::last_os_error());
            return;
        }
        for line in [
            "ip link add slow type veth peer name far".to_owned(),
            "ip link set far up".to_owned(),
            format!("ip link set slow mtu {mtu} up"),
            "ip addr add 10.77.0.1/24 dev slow".to_owned(),
            "ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev slow".to_owned(),
            format!("tc qdisc add dev slow root tbf rate {rate} burst 10kb limit 100mb"),
        ] {
            let mut words = line.split(' ');
            let result = Command::new(words.next().unwrap()).args(words).output();
            match result {
                Ok(output) if output.status.success() => (),
                Ok(output) => {
                    let reason = String::from_utf8_lossy(&output.stderr).into_owned();
                    println!("not run: {line}: {reason}");
                    return;
                }
                Err(error) => {
                    println!("not run: {line}: {error}");
                    return;
                }
            }
        }
        let io = UdpIo::bind(UdpConfig { send_buffer: 128 << 10, ..UdpConfig::new(LOCAL.parse().unwrap()) });
        test(io.unwrap(), REMOTE.parse().unwrap());
    };
    // A panic in the thread fails the test here.
    thread::spawn(body).join().unwrap();
}

#[test]
fn a_full_send_buffer_is_waited_out() {
    for segment in [1000, 5000] {
        on_link("9000", "80mbit", move |mut io, to| {
            let start = Instant::now();
            // 1 MB takes 0.1 s on the link; each run waits for less than its patience.
            for _ in 0..10 {
                io.send_run(to, &[0; 100_000], segment).unwrap();
            }
            assert!(start.elapsed() > Duration::from_millis(50), "{:?}", start.elapsed());
            assert_eq!(io.stats().packets_out, 1_000_000 / segment as u64);
            assert_eq!(io.stats().send_errors, 0);
        });
    }
}

#[test]
fn a_stuck_link_costs_one_patience_and_is_counted() {
    on_link("1500", "8kbit", |mut io, to| {
        let start = Instant::now();
        io.send_run(to, &[0; 1_000_000], 1000).unwrap();
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(100), "{took:?}");
        assert!(took < Duration::from_secs(20), "{took:?}");
        let stats = io.stats();
        assert!(stats.packets_out > 0 && stats.send_errors > 0, "{stats:?}");
        assert_eq!(stats.packets_out + stats.send_errors, 1000);
        let (peer, cause) = io.last_send_error().unwrap();
        assert_eq!((peer, cause.kind()), (to, io::ErrorKind::WouldBlock));
    });
}

#[test]
fn datagrams_beyond_the_mtu_are_an_error_that_says_so() {
    for contents in [vec![0; 1052], vec![0; 10_520]] {
        on_link("1000", "1gbit", move |mut io, to| {
            let error = io.send_run(to, &contents, 1052).unwrap_err();
            assert_eq!(
                error.to_string(),
                "a datagram of 1052 bytes to 10.77.0.2:4000 exceeds the MTU on the way: raise \
                 the interface's MTU to at least 1080"
            );
            let inner = error.get_ref().and_then(|e| e.downcast_ref());
            assert!(matches!(inner, Some(TransportError::DatagramTooLarge { len: 1052, .. })));
            io.send_run(to, &contents[..972], 972).unwrap();
            assert_eq!(io.stats().packets_out, 1);
        });
    }
}

#[test]
fn a_host_without_route_is_loss_not_failure() {
    on_link("1500", "1gbit", |mut io, to| {
        let nowhere = "192.0.2.1:4000".parse().unwrap();
        io.send_run(nowhere, &[0; 10_000], 1000).unwrap();
        assert_eq!((io.stats().packets_out, io.stats().send_errors), (0, 10));
        let (peer, cause) = io.last_send_error().unwrap();
        assert_eq!((peer, cause.raw_os_error()), (nowhere, Some(libc::ENETUNREACH)));
        io.send_run(to, &[0; 1000], 1000).unwrap();
        assert_eq!(io.stats().packets_out, 1);
    });
}
