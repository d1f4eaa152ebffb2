//! The program that a controller sets.

use std::net::SocketAddr;

use p4runtime_proto::v1::update::Type::Insert;
use p4runtime_proto::v1::{
    CapabilitiesRequest, GetForwardingPipelineConfigRequest, ReadRequest, WriteRequest,
    get_forwarding_pipeline_config_request,
};
use tonic::Code;

use crate::controller::{Controller, PipelineAction, all_rows, errors, group, update};
use crate::job_rows::{plain, rows};

#[tokio::test]
async fn the_pipeline_is_checked_set_and_read() {
    let (_server, at) = plain();
    let (mut it, _) = Controller::new(at, 1).await;
    let get = |response_type| GetForwardingPipelineConfigRequest { device_id: 0, response_type };
    let all = get_forwarding_pipeline_config_request::ResponseType::All.into();
    for refused in [
        it.try_write(Vec::new()).await.unwrap_err(),
        it.read(Vec::new()).await.unwrap_err(),
        it.client.get_forwarding_pipeline_config(get(all)).await.unwrap_err(),
    ] {
        assert_eq!(refused.code(), Code::FailedPrecondition);
    }
    let code = |result: Result<(), tonic::Status>| result.err().map_or(Code::Ok, |status| status.code());
    assert_eq!(code(it.set_pipeline(PipelineAction::Unspecified, b"").await), Code::InvalidArgument);
    assert_eq!(code(it.pipeline(PipelineAction::Commit, None).await), Code::Unimplemented);
    assert_eq!(code(it.set_pipeline(PipelineAction::VerifyAndSave, b"").await), Code::Unimplemented);
    assert_eq!(code(it.pipeline(PipelineAction::Verify, None).await), Code::InvalidArgument);
    assert_eq!(code(it.set_pipeline(PipelineAction::Verify, b"lanes").await), Code::InvalidArgument);
    assert_eq!(code(it.set_pipeline(PipelineAction::Verify, b"").await), Code::Ok);
    assert_eq!(code(it.try_write(Vec::new()).await), Code::FailedPrecondition);
    let mut other = it.info.clone();
    other.tables[0].size = 3;
    std::mem::swap(&mut it.info, &mut other);
    let refused = it.set_pipeline(PipelineAction::VerifyAndCommit, b"").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("racks"), "{refused:?}");
    std::mem::swap(&mut it.info, &mut other);

    assert_eq!(code(it.set_pipeline(PipelineAction::VerifyAndCommit, b"{}").await), Code::Ok);
    assert_eq!(code(it.try_write(Vec::new()).await), Code::Ok);
    let held = it.client.get_forwarding_pipeline_config(get(all)).await.unwrap().into_inner().config.unwrap();
    assert_eq!(held.p4_device_config, b"{}");
    // As it was set, but for the forms of packets and the room for them, which are the server's own, and for the header.
    let (mut told, mut set) = (held.p4info.unwrap(), it.info.clone());
    assert!(told.table("lookup").unwrap().annotation("forms").unwrap().starts_with("1/4 1/8 "));
    assert!(told.table("jobs").unwrap().annotation("room").unwrap().ends_with(" 64"));
    for table in [&mut told, &mut set].into_iter().flat_map(|info| &mut info.tables) {
        for own in ["forms", "room"] {
            table.annotate(own, "");
        }
    }
    // Packets to the controller have no header, whose field would be a port.
    set.controller_packet_metadata.clear();
    assert_eq!(told, set);
    let cookie = get_forwarding_pipeline_config_request::ResponseType::CookieOnly.into();
    let held =
        it.client.get_forwarding_pipeline_config(get(cookie)).await.unwrap().into_inner().config.unwrap();
    assert_eq!((held.p4info, held.p4_device_config.len()), (None, 0));

    // To reconcile keeps all rows.
    let members = vec![SocketAddr::from(([127, 0, 0, 1], 9)); 8];
    it.write(Insert, rows(&it, 1, 1, &members)).await;
    assert_eq!(code(it.set_pipeline(PipelineAction::ReconcileAndCommit, b"{}").await), Code::Ok);
    assert!(it.read(vec![all_rows(0)]).await.unwrap().len() > 16);
    // A commit empties everything, and more workers do not fit.
    assert_eq!(code(it.set_pipeline(PipelineAction::VerifyAndCommit, b"").await), Code::Ok);
    assert_eq!(it.read(vec![all_rows(0), group(0, &[])]).await.unwrap().len(), 0);
    let members = vec![SocketAddr::from(([127, 0, 0, 1], 9)); 10];
    let wanted = rows(&it, 1, 1, &members).into_iter().map(|row| update(Insert, row)).collect();
    let refused = it.try_write(wanted).await.unwrap_err();
    let failed: Vec<_> = errors(&refused).into_iter().filter(|(code, _)| *code != Code::Ok).collect();
    assert!(
        matches!(&failed[..], [(Code::InvalidArgument, message)] if message.contains("300")),
        "{failed:?}"
    );

    for device in [
        it.client.read(ReadRequest { device_id: 7, ..Default::default() }).await.map(drop),
        it.client.write(WriteRequest { device_id: 7, ..Default::default() }).await.map(drop),
    ] {
        assert_eq!(device.unwrap_err().code(), Code::NotFound);
    }
    let roles = WriteRequest { role: "x".into(), ..Default::default() };
    assert_eq!(it.client.write(roles).await.unwrap_err().code(), Code::NotFound);
    let version = it.client.capabilities(CapabilitiesRequest {}).await.unwrap().into_inner();
    assert_eq!(version.p4runtime_api_version, p4runtime_proto::API_VERSION);
}
