//! The calls of cluster managers, nodes, job trackers and clients. Spec: mapreduce/03 §3.6, §3.9.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use corona_hadoop::protocols::cluster_manager_safe_mode::{self, ClusterManagerSafeMode};
use corona_hadoop::rpc::{Caller, Fault};
use corona_wire::calls::{ProxyJobTracker, ProxyJobTrackerCall, ProxyJobTrackerReply};
use corona_wire::server::{self, Answer, Peer};

use super::ProxyContext;

/// How often each method was called.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) set_safe_mode: AtomicU64,
    pub(super) get_safe_mode: AtomicU64,
    pub(super) system_dir: AtomicU64,
    pub(super) clean_cache: AtomicU64,
}

/// Answers the calls of the Thrift service. None of them waits for anything.
pub(super) struct Handler(pub(super) Arc<ProxyContext>);

impl server::Handler<ProxyJobTracker> for Handler {
    async fn call(&self, peer: Peer, call: ProxyJobTrackerCall) -> Answer<ProxyJobTrackerReply> {
        let shared = &self.0;
        let calls = &shared.calls;
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        Answer::Reply(match call {
            ProxyJobTrackerCall::SetClusterManagerSafeModeFlag { flag } => {
                count(&calls.set_safe_mode);
                shared.set_safe_mode(flag, peer.address);
                ProxyJobTrackerReply::SetClusterManagerSafeModeFlag
            }
            ProxyJobTrackerCall::GetClusterManagerSafeModeFlag => {
                count(&calls.get_safe_mode);
                let flag = shared.safe_mode.load(Ordering::Acquire);
                ProxyJobTrackerReply::GetClusterManagerSafeModeFlag(flag)
            }
            ProxyJobTrackerCall::GetSystemDir => {
                count(&calls.system_dir);
                ProxyJobTrackerReply::GetSystemDir(shared.system_dir.clone())
            }
            ProxyJobTrackerCall::CleanJobHistoryCache { job_id } => {
                count(&calls.clean_cache);
                if let Some(job) = job_id {
                    shared.forget_history(&job);
                }
                ProxyJobTrackerReply::CleanJobHistoryCache
            }
        })
    }
}

impl ProxyContext {
    fn set_safe_mode(&self, flag: bool, peer: SocketAddr) {
        let before = self.safe_mode.swap(flag, Ordering::AcqRel);
        // The original's line.
        tracing::info!(%peer, before, "On ProxyJobTracker, clusterManagerSafeModeFlag: {flag}");
    }
}

/// The old protocol for the same flag, which the original names and does not carry out.
pub(super) fn safe_mode_over_rpc(shared: Arc<ProxyContext>) -> impl corona_hadoop::rpc::Service {
    cluster_manager_safe_mode::Served::new(shared)
}

impl ClusterManagerSafeMode for ProxyContext {
    async fn get_cluster_manager_safe_mode_flag(&self, _: &Caller) -> Result<bool, Fault> {
        Ok(self.safe_mode.load(Ordering::Acquire))
    }

    async fn set_cluster_manager_safe_mode_flag(
        &self,
        caller: &Caller,
        flag: bool,
    ) -> Result<i32, Fault> {
        self.set_safe_mode(flag, caller.peer.address);
        Ok(0)
    }
}
