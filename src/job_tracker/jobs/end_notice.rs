//! The notice of the end of a job: one HTTP request to an address that the job names.
//! Spec: mapreduce/07 §7.9.

use std::time::Duration;

use corona_mapreduce::{JobId, JobState};
use tokio::time::sleep;

use crate::http::{self, Target};
use crate::submit::submission::EndNotice;

/// Notifies, and tries again as often as the job wants.
pub(crate) async fn notify(notice: &EndNotice, job: &JobId, state: JobState) {
    let url = notice.url.replace("$jobId", job.as_str()).replace("$jobStatus", state.name());
    let Some(target) = Target::parse(&url) else {
        tracing::warn!(%job, url, "cannot notify of the end of a job: not an http address");
        return;
    };
    for tried in 0..=notice.retries {
        if tried > 0 {
            sleep(Duration::from_millis(notice.pause_ms)).await;
        }
        let failure = match http::get_outside(&target).await {
            Ok(200) => return,
            Ok(code) => format!("the reply was {code}"),
            Err(error) => error.to_string(),
        };
        tracing::info!(%job, url, failure, tried, "the notice of the end of a job failed");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_notice_is_repeated_until_it_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let notice = EndNotice {
            url: format!("http://{address}/done?id=$jobId&how=$jobStatus"),
            retries: 3,
            pause_ms: 1,
        };
        let job: JobId = "job_202611210043.1_0001".parse().unwrap();
        let serving = async {
            for reply in ["nonsense", "HTTP/1.1 503 Busy\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 512];
                let length = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let expected = "GET /done?id=job_202611210043.1_0001&how=FAILED HTTP/1.0\r\n";
                assert!(request.starts_with(expected), "{request}");
                stream.write_all(reply.as_bytes()).await.unwrap();
            }
        };
        tokio::join!(notify(&notice, &job, JobState::Failed), serving);
    }
}
