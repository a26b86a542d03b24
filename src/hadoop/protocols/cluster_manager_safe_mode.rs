//! An old protocol for safe mode, which is not used. Spec: mapreduce/03 §3.6.

use super::macros::protocol;

protocol! {
    /// A proxy job tracker of old. Today's know the protocol and do not serve it.
    pub trait ClusterManagerSafeMode as "org.apache.hadoop.mapred.ClusterManagerSafeModeProtocol",
        version 1, client ClusterManagerSafeModeClient
    {
        /// Whether the cluster manager is in safe mode.
        "getClusterManagerSafeModeFlag" fn get_cluster_manager_safe_mode_flag() -> bool;

        /// Stores whether it is.
        "setClusterManagerSafeModeFlag" fn set_cluster_manager_safe_mode_flag(flag: bool) -> i32;
    }
}
