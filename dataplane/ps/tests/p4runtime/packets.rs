//! Frames of the controller.

use std::net::SocketAddr;
use thc_p4::rows::address_number;

use p4runtime_proto::v1::stream_message_response;
use tonic::Code;

use crate::controller::Controller;
use crate::job_rows::plain;
use crate::session::PATIENCE;

/// A frame with a datagram, as a controller makes it.
pub fn frame(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let udp = 8 + payload.len() as u16;
    let mut ip = vec![0x45, 0];
    ip.extend((20 + udp).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip.extend((address_number(from.ip()) as u32).to_be_bytes());
    ip.extend((address_number(to.ip()) as u32).to_be_bytes());
    let sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![0; 12];
    frame.extend([8, 0]);
    frame.extend(ip);
    for word in [from.port(), to.port(), udp, 0] {
        frame.extend(word.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

#[tokio::test]
async fn packets_out_that_cannot_be_sent_are_answered() {
    let (_server, at) = plain();
    let mut it = Controller::primary(at).await;
    let to = SocketAddr::from(([127, 0, 0, 1], 9));
    let mut broken = frame(to, to, b"hello");
    broken[24] ^= 1;
    for payload in [vec![0; 20], broken, frame(to, to, &[]), frame(to, to, &[0; 1045])] {
        it.send(payload).await;
        match it.update().await {
            stream_message_response::Update::Error(error) => {
                assert_eq!(error.canonical_code, Code::InvalidArgument as i32, "{error:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    // The stream goes on.
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = socket.local_addr().unwrap();
    it.send(frame(to, to, b"hello")).await;
    let mut buffer = [0; 64];
    let received = tokio::time::timeout(PATIENCE, socket.recv(&mut buffer)).await;
    assert_eq!(received.unwrap().unwrap(), 5);
}
