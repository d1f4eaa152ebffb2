//! Which of several controllers may write.

use std::net::SocketAddr;

use p4runtime_proto::v1::update::Type::Insert;
use p4runtime_proto::v1::{MasterArbitrationUpdate, Role, Uint128, stream_message_response};
use tonic::Code;

use crate::controller::{Controller, PipelineAction, all_rows, update};
use crate::job_rows::plain;
use crate::packets::frame;

#[tokio::test]
async fn two_controllers_compete() {
    let (_server, at) = plain();
    let (mut first, code) = Controller::new(at, 5).await;
    assert_eq!(code, Code::Ok);
    first.set_pipeline(PipelineAction::VerifyAndCommit, b"").await.unwrap();
    let (mut second, code) = Controller::new(at, 4).await;
    assert_eq!(code, Code::AlreadyExists);
    let row = second.row("job_tables", &[("job", 1), ("table", 1)], "allow_table", &[]);
    let denied = second.try_write(vec![update(Insert, row.clone())]).await.unwrap_err();
    assert_eq!((denied.code(), denied.details().len()), (Code::PermissionDenied, 0));
    // Everybody may read.
    assert_eq!(second.read(vec![all_rows(0)]).await.unwrap().len(), 0);
    second.send(frame(SocketAddr::from(([0; 4], 1)), SocketAddr::from(([127, 0, 0, 1], 1)), b"x")).await;
    match second.update().await {
        stream_message_response::Update::Error(error) => {
            assert_eq!(error.canonical_code, Code::PermissionDenied as i32);
        }
        other => panic!("{other:?}"),
    }

    // The second raises its id: both are told, and roles change.
    second.introduce(Some(6)).await;
    assert_eq!(first.expect_standing().await, Code::AlreadyExists);
    assert_eq!(second.expect_standing().await, Code::Ok);
    assert_eq!(first.try_write(Vec::new()).await.unwrap_err().code(), Code::PermissionDenied);
    second.write(Insert, vec![row]).await;

    // The primary goes: the other is told that there is none, and takes over.
    drop(second);
    assert_eq!(first.expect_standing().await, Code::NotFound);
    assert_eq!(first.try_write(Vec::new()).await.unwrap_err().code(), Code::PermissionDenied);
    first.introduce(Some(6)).await;
    assert_eq!(first.expect_standing().await, Code::Ok);
    // What was written stays.
    assert_eq!(first.read(vec![all_rows(0)]).await.unwrap().len(), 1);

    // An id that is taken, another device, a role: the stream ends.
    for (election, device_id, role, code) in [
        (6, 0, None, Code::InvalidArgument),
        (7, 3, None, Code::NotFound),
        (7, 0, Some(Role { name: "sdn".into(), ..Role::default() }), Code::NotFound),
        (7, 0, Some(Role { id: 5, ..Role::default() }), Code::NotFound),
    ] {
        let mut other = Controller::silent(at).await;
        let election_id = Some(Uint128 { high: 0, low: election });
        other.arbitrate(MasterArbitrationUpdate { device_id, role, election_id, status: None }).await;
        assert_eq!(other.message().await.unwrap_err().code(), code);
    }
    // A role that says nothing is none.
    let mut other = Controller::silent(at).await;
    let role = Some(Role::default());
    other.arbitrate(MasterArbitrationUpdate { role, ..Default::default() }).await;
    assert_eq!(other.expect_standing().await, Code::AlreadyExists);
}
