//! An entry for the fuzzer, not for users: P4Runtime's writes, without a network.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::bounded;
use p4runtime_proto::v1::WriteRequest;
use thc_protocol::aggregator::{Aggregator, Shard};
use tonic::Status;

use crate::forwarding::SharedForwarding;
use crate::kernels::Simd;
use crate::p4runtime::Device;
use crate::shard::ShardCommand;
use crate::shards::Shards;
use crate::state::ServerState;
use thc_config::job::credit::Room;

/// A server's rows, and a shard that follows them.
pub struct Rows {
    device: Device,
    aggregator: Arc<Mutex<Aggregator<Simd>>>,
}

impl Rows {
    /// No rows; jobs may take `memory_limit` bytes.
    #[must_use]
    pub fn new(memory_limit: usize) -> Rows {
        let (commands, received) = bounded(1);
        let aggregator = Arc::new(Mutex::new(Aggregator::new(Shard::WHOLE, memory_limit)));
        let followed = Arc::clone(&aggregator);
        // The thread ends with the last sender of commands.
        std::thread::spawn(move || {
            while let Ok(command) = received.recv() {
                if let ShardCommand::Follow(changes, done) = command {
                    let mut aggregator = followed.lock().unwrap_or_else(PoisonError::into_inner);
                    let outcome = changes.apply(&mut *aggregator);
                    drop(aggregator);
                    let _ = done.send(outcome);
                }
            }
        });
        let shards = Shards::new(vec![commands], Arc::new(ServerState::new(Vec::new(), 1, None)));
        let forwarding = SharedForwarding::new(shards.clone(), memory_limit);
        let own = SocketAddr::from(([127, 0, 0, 1], 9000));
        Rows {
            device: Device::new((0, Room { packets: 0, members: 1 }), own, forwarding, shards, true),
            aggregator,
        }
    }

    /// Writes as a controller does.
    ///
    /// # Errors
    /// The server's refusal. Code `Unavailable` says that rows were accepted which the shard could not follow, and
    /// that would end a server.
    pub fn write(&self, request: &WriteRequest) -> Result<(), Status> {
        self.device.write_batch(request)
    }

    /// The shard's aggregator.
    pub fn aggregator(&self) -> MutexGuard<'_, Aggregator<Simd>> {
        self.aggregator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
