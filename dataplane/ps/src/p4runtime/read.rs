//! Read: entries by key or all of a kind, as they were at one moment.

use std::sync::Arc;

use p4runtime_proto::v1::packet_replication_engine_entry::Type;
use p4runtime_proto::v1::{Entity, ReadRequest, ReadResponse, TableEntry, entity};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use super::clients::check_role;
use super::counters::{Query, Readings, cell_entity};
use super::device::Device;
use super::entries::{default_entity, group_entity, key_of, no_clones, row_entity, table_of};
use super::refusal::{Refusal, batch_status, refuse};
use super::write::not_there;
use crate::rows::{Entry, Key, Store};

/// Entities in one message.
const CHUNK: usize = 512;
/// Messages that wait for a slow reader.
const ROOM: usize = 2;

/// A valid request for one entity.
#[derive(Debug)]
enum Wanted {
    Rows { table: Option<u32>, key: Option<Key>, metadata: (Vec<u8>, u64) },
    Defaults { table: Option<u32>, metadata: (Vec<u8>, u64) },
    Groups(Option<u32>),
    Counters(Query),
}

/// Messages on their way, in chunks.
struct Chunks {
    sender: mpsc::Sender<Result<ReadResponse, Status>>,
    entities: Vec<Entity>,
}

impl Chunks {
    /// Returns `false` if the reader has gone.
    async fn push(&mut self, entity: Entity) -> bool {
        self.entities.push(entity);
        self.entities.len() < CHUNK || self.flush().await
    }

    async fn flush(&mut self) -> bool {
        let entities = std::mem::take(&mut self.entities);
        entities.is_empty() || self.sender.send(Ok(ReadResponse { entities })).await.is_ok()
    }
}

impl Device {
    /// Answers a read request; entities that cannot be read are reported at the end, each in its place.
    ///
    /// # Errors
    /// The refusal of the whole request.
    pub fn read(
        self: &Arc<Self>,
        request: ReadRequest,
    ) -> Result<ReceiverStream<Result<ReadResponse, Status>>, Status> {
        self.check_reader(request.device_id)?;
        check_role(0, &request.role)?;
        let wanted: Vec<_> = request.entities.into_iter().map(|entity| self.parse_request(entity)).collect();
        let store = self.forwarding.lock().snapshot();
        let counters = wanted.iter().any(|wanted| matches!(wanted, Ok(Wanted::Counters(_))));
        let readings = if counters { self.readings() } else { Readings::default() };
        let (sender, receiver) = mpsc::channel(ROOM);
        let device = Arc::clone(self);
        tokio::spawn(async move {
            let mut chunks = Chunks { sender, entities: Vec::new() };
            let mut results = Vec::with_capacity(wanted.len());
            for wanted in wanted {
                match wanted {
                    Ok(wanted) => {
                        if !device.answer(&store, &readings, wanted, &mut chunks).await {
                            return;
                        }
                        results.push(Ok(()));
                    }
                    Err(refusal) => results.push(Err(refusal)),
                }
            }
            if chunks.flush().await
                && let Err(status) = batch_status(&results)
            {
                let _ = chunks.sender.send(Err(status)).await;
            }
        });
        Ok(ReceiverStream::new(receiver))
    }

    fn parse_request(&self, entity: Entity) -> Result<Wanted, Refusal> {
        use entity::Entity;
        match entity.entity {
            Some(Entity::TableEntry(entry)) => self.wanted_rows(entry),
            Some(Entity::PacketReplicationEngineEntry(entry)) => match entry.r#type {
                Some(Type::MulticastGroupEntry(group)) => {
                    Ok(Wanted::Groups(Some(group.multicast_group_id).filter(|&number| number != 0)))
                }
                Some(Type::CloneSessionEntry(_)) => no_clones(),
                None => refuse(Code::InvalidArgument, "the entry is neither a group nor a clone session"),
            },
            Some(Entity::CounterEntry(entry)) => Query::parse(self.program, &entry).map(Wanted::Counters),
            Some(other) => refuse(Code::Unimplemented, not_there(&other)),
            None => refuse(Code::InvalidArgument, "the entity is of no kind"),
        }
    }

    fn wanted_rows(&self, entry: TableEntry) -> Result<Wanted, Refusal> {
        let metadata = (entry.metadata, entry.controller_metadata);
        if entry.priority != 0 {
            return refuse(Code::InvalidArgument, "all tables match exactly: leave priority out");
        }
        if entry.table_id == 0 {
            return match (entry.r#match.is_empty(), entry.is_default_action) {
                (false, _) => refuse(Code::InvalidArgument, "a key needs a table_id"),
                (true, true) => Ok(Wanted::Defaults { table: None, metadata }),
                (true, false) => Ok(Wanted::Rows { table: None, key: None, metadata }),
            };
        }
        let table = table_of(self.program, entry.table_id)?;
        let id = Some(entry.table_id);
        match (entry.r#match.is_empty(), entry.is_default_action) {
            (false, true) => {
                refuse(Code::InvalidArgument, format!("{}: the default entry has no key", table.name))
            }
            (true, true) => Ok(Wanted::Defaults { table: id, metadata }),
            (true, false) => Ok(Wanted::Rows { table: id, key: None, metadata }),
            (false, false) => {
                let key = Some(key_of(table, &entry.r#match)?);
                Ok(Wanted::Rows { table: id, key, metadata })
            }
        }
    }

    /// Returns `false` if the reader has gone.
    async fn answer(&self, store: &Store, readings: &Readings, wanted: Wanted, chunks: &mut Chunks) -> bool {
        let tables = |table: Option<u32>| {
            let all = self.program.tables.keys().copied();
            all.filter(move |id| table.is_none_or(|wanted| wanted == *id))
        };
        let suits = |entry: &Entry, (metadata, number): &(Vec<u8>, u64)| {
            (metadata.is_empty() || *metadata == entry.metadata)
                && (*number == 0 || *number == entry.controller_metadata)
        };
        match wanted {
            Wanted::Rows { table, key, metadata } => {
                for id in tables(table) {
                    let rows = store.rows(id).filter(|(held, _)| key.as_ref().is_none_or(|key| key == *held));
                    for (key, entry) in rows.filter(|(_, entry)| suits(entry, &metadata)) {
                        if !chunks.push(row_entity(self.program, id, key, entry)).await {
                            return false;
                        }
                    }
                }
            }
            Wanted::Defaults { table, metadata } => {
                for id in tables(table) {
                    let entry = store.default_of(self.program, id).filter(|entry| suits(entry, &metadata));
                    if let Some(entry) = entry
                        && !chunks.push(default_entity(self.program, id, entry)).await
                    {
                        return false;
                    }
                }
            }
            Wanted::Groups(number) => {
                for (number, group) in store.groups().filter(|(held, _)| number.is_none_or(|n| n == *held)) {
                    if !chunks.push(group_entity(number, group)).await {
                        return false;
                    }
                }
            }
            Wanted::Counters(query) => {
                let base = Arc::clone(&self.state().base);
                for cell in query.cells(self.program) {
                    if !chunks.push(cell_entity(readings, &base, cell)).await {
                        return false;
                    }
                }
            }
        }
        true
    }
}
