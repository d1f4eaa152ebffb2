//! Controllers cannot take more than is theirs.

use std::time::Instant;

use p4runtime_proto::v1::CapabilitiesRequest;
use tonic::Code;

use crate::controller::{Controller, PipelineAction, connect};
use crate::job_rows::plain;

#[tokio::test]
async fn streams_are_limited_and_messages_too() {
    let (_server, at) = plain();
    let mut all = Vec::new();
    for election in 0..16 {
        all.push(Controller::new(at, election).await.0);
        // Of a few connections.
        if all.len() == 8 {
            all.truncate(1);
        }
    }
    let mut more = Vec::new();
    let refused = loop {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        match all[0].client.stream_channel(stream).await {
            Ok(stream) => more.push((stream, sender)),
            Err(status) => break status,
        }
        assert!(more.len() < 16);
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let mut it = all.pop().unwrap();
    let big = vec![b'{'; 9 << 20];
    let refused = it.set_pipeline(PipelineAction::VerifyAndCommit, &big).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange);
    it.set_pipeline(PipelineAction::VerifyAndCommit, &big[..4 << 20]).await.unwrap();
}

#[tokio::test]
async fn connections_are_limited() {
    let (server, at) = plain();
    let mut kept = Vec::new();
    for _ in 0..64 {
        kept.push(connect(at).await);
    }
    // One more is closed: a request on it fails, while the others work.
    let refused = match p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient::connect(format!(
        "http://{at}"
    ))
    .await
    {
        Err(_) => true,
        Ok(mut client) => client.capabilities(CapabilitiesRequest {}).await.is_err(),
    };
    assert!(refused);
    for client in &mut kept {
        client.capabilities(CapabilitiesRequest {}).await.unwrap();
    }
    // With open streams, too, a server stops at once.
    let stopped = Instant::now();
    drop(server);
    assert!(stopped.elapsed() < crate::session::PATIENCE / 5);
}
