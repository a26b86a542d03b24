//! Fingerprints against those that the original computes. Spec: mapreduce/01 §1.6.1.

use super::*;
use crate::object::Class;
use crate::rpc::HANDSHAKE;

#[test]
fn fingerprints_and_versions() {
    let table = [
        (&corona_task_tracker::PROTOCOL, 2, 4, 259_127_841),
        (&inter_corona_job_tracker::PROTOCOL, 2, 7, 751_085_304),
        (&inter_tracker::PROTOCOL, 29, 8, -746_823_657),
        (&task_umbilical::PROTOCOL, 18, 14, 937_413_979),
        (&job_submission::PROTOCOL, 22, 25, -279_264_165),
        (&cluster_manager_safe_mode::PROTOCOL, 1, 4, 1_224_970_400),
        (&job_aggregator::PROTOCOL, 1, 4, -191_092_519),
    ];
    assert_eq!(table.len(), ALL.len());
    for (protocol, version, methods, fingerprint) in table {
        assert_eq!(protocol.version, version, "{}", protocol.name);
        assert_eq!(protocol.methods.len() + HANDSHAKE.len(), methods, "{}", protocol.name);
        assert_eq!(protocol.fingerprint(), fingerprint, "{}", protocol.name);
    }
}

#[test]
fn hashes_of_methods() {
    let table = [
        (&corona_task_tracker::PROTOCOL, "startCoronaJobTracker", 1_753_421_106),
        (&corona_task_tracker::PROTOCOL, "submitActions", 1_437_903_880),
        (&inter_corona_job_tracker::PROTOCOL, "getAndSetCommitting", 876_423_787),
        (&inter_corona_job_tracker::PROTOCOL, "getNewJobTrackerAddress", -1_257_594_377),
        (&inter_tracker::PROTOCOL, "heartbeat", 2_013_988_848),
        (&inter_tracker::PROTOCOL, "getTaskCompletionEvents", -1_576_941_933),
        (&task_umbilical::PROTOCOL, "statusUpdate", -520_009_523),
        (&task_umbilical::PROTOCOL, "reportNextRecordRange", 848_884_444),
        (&job_submission::PROTOCOL, "getQueueAclsForCurrentUser", -565_814_409),
        (&job_aggregator::PROTOCOL, "reportJobStats", -1_697_205_403),
    ];
    for (protocol, name, hash) in table {
        let method = protocol.methods.iter().find(|method| method.name == name).unwrap();
        assert_eq!(method.hash(), hash, "{name}");
    }
}

/// Every class that a method declares can be read.
#[test]
fn classes_of_methods_are_known() {
    let own = job_files::PROTOCOL.methods;
    for method in ALL.iter().flat_map(|protocol| protocol.methods).chain(HANDSHAKE).chain(own) {
        for class in method.parameters.iter().chain([&method.returns]) {
            let parsed = Class::parse(class).unwrap();
            assert!(parsed.is_named(class), "{}: {class}", method.name);
        }
    }
}
