//! Finding the successor of a job tracker that is unreachable, by asking the parent of the job.
//!
//! Spec: mapreduce/03 §3.4.

use tokio::time::sleep;

use super::reporter::{FailOverError, Reporter};
use corona_hadoop::protocols::inter_corona_job_tracker::InterCoronaJobTrackerClient;
use corona_hadoop::protocols::inter_tracker::InterTrackerClient;
use corona_hadoop::rpc::ClientOptions;
use corona_hadoop::writables::InetAddress;

impl Reporter {
    /// Asks the secondary for another job tracker until there is one that can be reached.
    pub(super) async fn fail_over(&mut self, secondary: &InetAddress) -> Result<(), FailOverError> {
        let rounds = self.shared.parts.settings.reports.fail_over_rounds;
        let mut failed = self.client.client().address().clone();
        for _ in 0..rounds {
            let address = self.replacement(secondary, &failed).await?;
            let options = ClientOptions {
                connect_patience: self.shared.parts.settings.reports.connect_timeout,
                ..self.shared.client_options()
            };
            match InterTrackerClient::new(address.clone(), options).greet().await {
                Ok(()) => {
                    let options = self.shared.client_options();
                    self.follow(InterTrackerClient::new(address.clone(), options), &address);
                    return Ok(());
                }
                Err(error) => {
                    tracing::info!(job = %self.job, %address, %error, "the new job tracker is unreachable too");
                    failed = address;
                }
            }
        }
        Err(FailOverError::Unreachable(rounds))
    }

    /// Where the job tracker is that took the place of this one.
    async fn replacement(
        &self,
        secondary: &InetAddress,
        failed: &InetAddress,
    ) -> Result<InetAddress, FailOverError> {
        let reports = &self.shared.parts.settings.reports;
        let options = ClientOptions {
            connect_patience: reports.secondary_timeout,
            ..self.shared.client_options()
        };
        let mut client = InterCoronaJobTrackerClient::new(secondary.clone(), options);
        for _ in 0..reports.fail_over_queries {
            let answer = client.get_new_job_tracker_address(failed.clone()).await;
            if let Some(address) = answer.map_err(FailOverError::Secondary)? {
                return Ok(address);
            }
            sleep(self.interval()).await;
        }
        Err(FailOverError::None(reports.fail_over_queries))
    }
}
