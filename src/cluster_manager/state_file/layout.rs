//! The layout of a state file, member by member.
//!
//! Spec: cluster-manager/07 §2. The original reads most objects strictly, so the order of members
//! here is the order in the file. Reading is lenient: any order, unknown members are ignored, and
//! in the objects that the original fills by name (its beans) missing members have their defaults.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Deserialize as FromFile, Serialize, Serializer};

use corona_model::types::{ResourceType, SessionPriority, SessionStatus};

/// The whole file. `N` and `S` are the maps of nodes and sessions: [`Entries`] when the file is
/// read, [`MapOf`] when it is written.
#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<N, S> {
    pub(super) start_time: i64,
    pub(super) node_manager: NodeManager<N>,
    pub(super) session_manager: SessionManager<S>,
    pub(super) session_notifier: SessionNotifier,
}

#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeManager<N> {
    pub(super) name_to_node: N,
    pub(super) hosts_to_sessions: Entries<Arc<str>, Vec<Arc<str>>>,
    pub(super) name_to_apps: Entries<Arc<str>, Apps>,
}

/// Where a node serves each type.
pub(super) type Apps = Entries<ResourceType, Arc<str>>;

#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct Node {
    pub(super) cluster_node_info: NodeInfo,
    /// By session and request in one word, which is not read.
    pub(super) grants: Entries<Arc<str>, NodeGrant>,
}

#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeInfo {
    pub(super) name: Option<Arc<str>>,
    pub(super) address: Address,
    pub(super) total: Specs,
    pub(super) free: Option<Specs>,
    pub(super) resource_infos: Option<Apps>,
}

#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeGrant {
    pub(super) grant_id: GrantId,
    pub(super) grant: KnownRequest,
}

#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct GrantId {
    #[serde(deserialize_with = "text")]
    pub(super) session_id: Arc<str>,
    pub(super) request_id: i32,
}

#[derive(Debug, Serialize, FromFile)]
pub(super) struct KnownRequest {
    pub(super) request: Request,
}

#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionManager<S> {
    pub(super) sessions: S,
    pub(super) session_counter: i64,
}

#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct SavedSession {
    pub(super) id_to_request: Entries<i32, KnownRequest>,
    pub(super) id_to_pending_requests: Vec<i32>,
    pub(super) id_to_grant: Entries<i32, Grant>,
    pub(super) status: SessionStatus,
    pub(super) session_id: Option<Arc<str>>,
    pub(super) deleted: bool,
    pub(super) deleted_time: i64,
    pub(super) info: Info,
    pub(super) start_time: i64,
    pub(super) pool_info: Option<Pool>,
    pub(super) type_to_first_wait: Entries<ResourceType, i64>,
    // The three that files of older versions do not have.
    #[serde(default)]
    pub(super) expected_info: Option<HeartbeatArgs>,
    #[serde(default)]
    pub(super) last_heartbeat: Option<HeartbeatArgs>,
    #[serde(default)]
    pub(super) last_sync_time: Option<i64>,
}

#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pool {
    #[serde(deserialize_with = "text")]
    pub(super) pool_group_name: Arc<str>,
    #[serde(deserialize_with = "text")]
    pub(super) pool_name: Arc<str>,
}

#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionNotifier {
    /// Not read: the number of entries counts.
    #[serde(skip_deserializing)]
    pub(super) total_sessions_to_ctx: usize,
    pub(super) sessions_to_ctx: Entries<Arc<str>, Context>,
    #[serde(skip_deserializing)]
    pub(super) total_deleted_sessions: usize,
    pub(super) deleted_sessions: Vec<Arc<str>>,
}

/// A session's pending notification.
#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct Context {
    pub(super) handle: Option<Arc<str>>,
    #[serde(deserialize_with = "text")]
    pub(super) host: Arc<str>,
    pub(super) port: i32,
    #[serde(skip_deserializing)]
    pub(super) num_pending_calls: usize,
    pub(super) pending_calls: Vec<PendingCall>,
}

#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct PendingCall {
    pub(super) call_type: Arc<str>,
    pub(super) call: Call,
}

/// Bean. The arguments of a call: which of them are there depends on the call's type.
#[derive(Debug, Default, Serialize, FromFile)]
#[serde(default)]
pub(super) struct Call {
    pub(super) handle: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) granted: Option<Vec<Grant>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revoked: Option<Vec<Grant>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) force: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<Arc<str>>,
}

/// Bean.
#[derive(Debug, Serialize, FromFile)]
pub(super) struct Address {
    pub(super) host: Arc<str>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) port: i32,
}

/// Bean. Numbers that are there count as given.
#[derive(Clone, Debug, Default, Serialize, FromFile)]
#[serde(default)]
pub(super) struct Specs {
    #[serde(rename = "numCpus", deserialize_with = "or_default")]
    pub(super) num_cpus: i16,
    #[serde(rename = "networkMBps")]
    pub(super) network_mbps: Option<i16>,
    #[serde(rename = "memoryMB")]
    pub(super) memory_mb: Option<i32>,
    #[serde(rename = "diskGB")]
    pub(super) disk_gb: Option<i32>,
}

/// Bean.
#[derive(Clone, Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    #[serde(default)]
    pub(super) id: Option<i32>,
    #[serde(default)]
    pub(super) hosts: Option<Vec<Arc<str>>>,
    #[serde(default)]
    pub(super) specs: Option<Specs>,
    #[serde(rename = "type")]
    pub(super) kind: ResourceType,
    #[serde(default)]
    pub(super) exclude_hosts: Option<Vec<Arc<str>>>,
}

/// Bean.
#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct Grant {
    #[serde(default)]
    pub(super) id: Option<i32>,
    pub(super) node_name: Arc<str>,
    #[serde(default)]
    pub(super) address: Option<Address>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) granted_time: i64,
    #[serde(rename = "type")]
    pub(super) kind: ResourceType,
    #[serde(default)]
    pub(super) app_info: Option<Arc<str>>,
}

/// Bean.
#[derive(Debug, Serialize, FromFile)]
#[serde(rename_all = "camelCase")]
pub(super) struct Info {
    pub(super) address: Address,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) name: Arc<str>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) user_id: Arc<str>,
    #[serde(default)]
    pub(super) group_ids: Option<Vec<Arc<str>>>,
    #[serde(default)]
    pub(super) pool_info_strings: Option<Pool>,
    #[serde(default)]
    pub(super) priority: Option<SessionPriority>,
    #[serde(default)]
    pub(super) no_preempt: Option<bool>,
    #[serde(default)]
    pub(super) url: Option<Arc<str>>,
    #[serde(default)]
    pub(super) deadline: Option<i64>,
}

/// Bean.
#[derive(Debug, Default, Serialize, FromFile)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct HeartbeatArgs {
    #[serde(deserialize_with = "or_default")]
    pub(super) request_id: i32,
    #[serde(deserialize_with = "or_default")]
    pub(super) grant_id: i32,
    /// Always `null`.
    #[serde(skip_deserializing)]
    pub(super) resource_usages: (),
}

/// A map in the order of the file.
#[derive(Clone, Debug)]
pub(super) struct Entries<K, V>(pub(super) Vec<(K, V)>);

impl<K: Serialize, V: Serialize> Serialize for Entries<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Entries<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for Reader<K, V> {
            type Value = Entries<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Reader(PhantomData))
    }
}

/// A map that is produced while it is written, so that it is never in memory as a whole: the items,
/// and the function that makes entries of them.
#[derive(Debug)]
pub(super) struct MapOf<'a, T, F>(pub(super) &'a [T], pub(super) F);

impl<'a, T, F, K, V> Serialize for MapOf<'a, T, F>
where
    F: Fn(&'a T) -> (K, V),
    K: Serialize,
    V: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(&self.1))
    }
}

/// A member of a bean that is `null` has its default.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The original reads `null` in place of a text as the word. Spec: cluster-manager/07 §4.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    let text = Option::<Arc<str>>::deserialize(deserializer)?;
    Ok(text.unwrap_or_else(|| "null".into()))
}
