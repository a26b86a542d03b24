//! Ends sessions that the notifier cannot reach. It connects the notifier, which knows no engine,
//! to the core, which knows no notifier.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::core::Core;
use super::notifier::{GaveUp, GiveUp, Notifier};
use corona_engine::{Input, Refusal};

/// Ends each session that `give_ups` yields, until the notifier is dropped.
pub(super) async fn end_unreachable(
    core: Arc<Core>,
    notifier: Arc<Notifier>,
    mut give_ups: mpsc::Receiver<GiveUp>,
) {
    while let Some(give_up) = give_ups.recv().await {
        if !notifier.still_concerns(&give_up) {
            give_up.answer(GaveUp::Ended);
            continue;
        }
        let outcome = core.apply(Input::NotificationFailed { handle: give_up.handle.clone() });
        give_up.answer(match outcome {
            Err(Refusal::SafeMode) => GaveUp::NotInSafeMode,
            Ok(_) | Err(_) => GaveUp::Ended,
        });
    }
}
