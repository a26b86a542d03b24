//! The addresses that clients and scripts of the original know, of its classic job tracker and of a
//! job tracker for one job. They lead to the pages here, with what was asked.
//! Spec: mapreduce/08 §8.6, mapreduce/07 §7.10.

use corona_web::exchange::{Parameters, encode_segment};

/// The address here for one of the original's; `None` for any other.
pub(super) fn redirect(file: &str, parameters: &Parameters) -> Option<String> {
    let text = |name: &str| parameters.text(name);
    let tip = || text("tipid").or_else(|| text("taskid").filter(|id| id.starts_with("task_")));
    let attempt = || {
        let named = text("attemptid").or_else(|| text("taskid"));
        named.filter(|id| id.starts_with("attempt_"))
    };
    let job = || {
        let named = text("jobid").or_else(|| text("jobUniqueString")).map(str::to_owned);
        named.or_else(|| tip().or_else(attempt).and_then(job_of))
    };
    let of_job = |rest: &str| match job() {
        Some(job) => format!("/jobs/{}{rest}", encode_segment(&job)),
        None => "/".to_owned(),
    };
    let of_task = || match (attempt(), tip()) {
        (Some(attempt), _) => of_job(&format!("/attempts/{}", encode_segment(attempt))),
        (None, Some(tip)) => of_job(&format!("/tasks/{}", encode_segment(tip))),
        (None, None) => of_job(""),
    };
    // What is chosen there and here, under other names.
    let chosen = |path: &str, pairs: &[(&str, Option<&str>)]| {
        let pairs: Vec<(&str, &str)> =
            pairs.iter().filter_map(|(name, value)| Some((*name, (*value)?))).collect();
        Parameters::default().with(&pairs).address(&of_job(path))
    };
    let state = |state| match state {
        Some("completed") => Some("complete"),
        Some(state @ ("running" | "killed" | "pending" | "failed")) => Some(state),
        _ => None,
    };
    let cause = |cause: Option<&str>| match cause {
        Some("failed" | "FAILED") => Some("failed"),
        Some("killed" | "KILLED") => Some("killed"),
        _ => None,
    };
    Some(match file {
        "jobtracker.jsp" | "index.html" | "index.jsp" | "jobtracker_hmon.jsp" => {
            match text("jobid") {
                Some(_) => of_job(""),
                None => "/".to_owned(),
            }
        }
        "jobhistory.jsp" | "jobhistoryhome.jsp" | "coronajobhistory.jsp" | "jobcompletions.jsp" => {
            "/ended".to_owned()
        }
        "machines.jsp" => "/trackers".to_owned(),
        "jobqueue_details.jsp" => {
            let queue = text("queueName").unwrap_or_default();
            Parameters::default().with(&[("pools", queue)]).address("/")
        }
        "jobdetails.jsp"
        | "coronajobdetails.jsp"
        | "jobdetailshistory.jsp"
        | "coronajobdetailshistory.jsp"
        | "jobblacklistedtrackers.jsp"
        | "coronajobresources.jsp" => match text("action") {
            Some("confirm") => of_job("/end"),
            _ => of_job(""),
        },
        "analysejobhistory.jsp" | "coronaanalysejobhistory.jsp" => of_job(""),
        "jobtasks.jsp" | "coronajobtasks.jsp" => {
            chosen("/tasks", &[("kind", text("type")), ("state", state(text("state")))])
        }
        "jobtaskshistory.jsp" | "coronajobtaskshistory.jsp" => {
            let kind = text("taskType").map(str::to_lowercase);
            match cause(text("status")) {
                None => chosen("/tasks", &[("kind", kind.as_deref())]),
                cause => chosen("/failures", &[("kind", kind.as_deref()), ("cause", cause)]),
            }
        }
        "jobfailures.jsp" | "coronajobfailures.jsp" => {
            let kind = text("kind").filter(|kind| *kind != "all");
            chosen("/failures", &[("kind", kind), ("cause", cause(text("cause")))])
        }
        "taskdetails.jsp"
        | "coronataskdetails.jsp"
        | "taskdetailshistory.jsp"
        | "coronataskdetailshistory.jsp" => match text("action") {
            Some("confirm") => format!("{}/end", of_task()),
            _ => of_task(),
        },
        "taskstats.jsp" | "coronataskstats.jsp" | "taskstatshistory.jsp" => of_task(),
        "jobconf.jsp"
        | "coronajobconf.jsp"
        | "jobconf_history.jsp"
        | "coronajobconf_history.jsp" => of_job("/configuration"),
        _ => return None,
    })
}

/// The job in the name of a task or an attempt.
fn job_of(name: &str) -> Option<String> {
    let mut parts = name.split('_').skip(1);
    Some(format!("job_{}_{}", parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_the_original_are_understood() {
        let job = "job_202611210043.7_0001";
        for (from, to) in [
            ("jobtracker.jsp", "/".to_owned()),
            ("jobtracker.jsp?jobid=J", "/jobs/J".to_owned()),
            ("jobhistory.jsp?pageno=1", "/ended".to_owned()),
            ("machines.jsp?type=active", "/trackers".to_owned()),
            ("jobqueue_details.jsp?queueName=a%26b", "/?pools=a%26b".to_owned()),
            ("jobdetails.jsp?jobid=J", "/jobs/J".to_owned()),
            ("jobdetails.jsp?jobid=J&refresh=30", "/jobs/J".to_owned()),
            ("jobdetails.jsp?jobid=J&action=confirm", "/jobs/J/end".to_owned()),
            ("coronajobdetails.jsp?jobid=J", "/jobs/J".to_owned()),
            ("jobtasks.jsp?jobid=J&type=map&pagenum=1", "/jobs/J/tasks?kind=map".to_owned()),
            (
                "jobtasks.jsp?jobid=J&type=reduce&pagenum=1&state=completed",
                "/jobs/J/tasks?kind=reduce&state=complete".to_owned(),
            ),
            (
                "jobtaskshistory.jsp?jobid=J&taskType=MAP&status=FAILED",
                "/jobs/J/failures?kind=map&cause=failed".to_owned(),
            ),
            (
                "jobfailures.jsp?jobid=J&kind=all&cause=killed",
                "/jobs/J/failures?cause=killed".to_owned(),
            ),
            (
                "jobfailures.jsp?jobid=J&kind=map&cause=failed",
                "/jobs/J/failures?kind=map&cause=failed".to_owned(),
            ),
            ("taskdetails.jsp?jobid=J&tipid=task_1_m_1", "/jobs/J/tasks/task_1_m_1".to_owned()),
            (
                "taskdetails.jsp?tipid=task_202611210043.7_0001_m_000003",
                "/jobs/J/tasks/task_202611210043.7_0001_m_000003".to_owned(),
            ),
            (
                "taskdetails.jsp?jobid=J&tipid=task_1_m_1&taskid=attempt_1_m_1_0&action=confirm&subaction=kill-task",
                "/jobs/J/attempts/attempt_1_m_1_0/end".to_owned(),
            ),
            ("taskstats.jsp?jobid=J&tipid=task_1_m_1", "/jobs/J/tasks/task_1_m_1".to_owned()),
            (
                "taskstats.jsp?attemptid=attempt_202611210043.7_0001_m_000003_0",
                "/jobs/J/attempts/attempt_202611210043.7_0001_m_000003_0".to_owned(),
            ),
            ("jobconf.jsp?jobid=J", "/jobs/J/configuration".to_owned()),
            (
                "coronajobconf_history.jsp?jobUniqueString=J&jobLogDir=file:/etc",
                "/jobs/J/configuration".to_owned(),
            ),
            ("jobdetails.jsp", "/".to_owned()),
            ("jobdetails.jsp?jobid=..%2F..%2F%0d%0aX", "/jobs/..%2F..%2F%0D%0AX".to_owned()),
        ] {
            let from = from
                .replace("jobid=J", &format!("jobid={job}"))
                .replace("String=J", &format!("String={job}"));
            let (file, query) = from.split_once('?').unwrap_or((&from, ""));
            let got = redirect(file, &Parameters::parse(query.as_bytes()));
            assert_eq!(got, Some(to.replace("/J", &format!("/{job}"))), "{from}");
        }
        assert_eq!(redirect("other.jsp", &Parameters::default()), None);
    }

    #[test]
    fn addresses_are_served_as_the_table_says() {
        let documented = include_str!("../../../docs/reference/compatibility/pages.md");
        let (_, table) = documented.split_once("\n## Job trackers\n").unwrap();
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `/"));
        let mut seen = 0;
        for row in rows {
            let mut cells = row.split(" | ");
            let file = cells.next().unwrap().trim_end_matches('`');
            let state = cells.next().unwrap();
            let job = Parameters::parse(b"jobid=job_202611210043.7_0001");
            let moved = redirect(file, &job).is_some();
            assert_eq!(moved, state == "moved", "{file}: {state}");
            seen += 1;
        }
        assert!(seen > 25, "{seen}");
    }
}
