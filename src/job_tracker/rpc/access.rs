//! Who may do what with a job. Clients name their user themselves: this keeps honest people from
//! accidents, as the original's does. Spec: mapreduce/07 §7.12.

use corona_config::AccessList;
use corona_hadoop::rpc::{Caller, Fault, User};

use crate::submit::submission::Description;

/// The exception that clients know.
pub(crate) const ACCESS: &str = "org.apache.hadoop.security.AccessControlException";

/// The access lists of the service.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) service_user: String,
    pub(crate) submitters: AccessList,
    pub(crate) viewers: AccessList,
    pub(crate) administrators: AccessList,
}

impl Access {
    /// The caller's user. Errors: it names none.
    pub(crate) fn user(caller: &Caller) -> Result<&User, Fault> {
        let user = caller.user.as_ref().filter(|user| !user.name.is_empty());
        user.ok_or_else(|| Fault::of(ACCESS, "the client does not say who its user is"))
    }

    /// The user, if it may submit jobs.
    pub(crate) fn submitter<'a>(&self, caller: &'a Caller) -> Result<&'a User, Fault> {
        let user = Access::user(caller)?;
        match self.submitters.admits(&user.name, &user.groups)
            || self.administers(user, is_certified(caller))
        {
            true => Ok(user),
            false => {
                let text =
                    format!("user {} may not submit jobs here (corona.jt.submitters)", user.name);
                Err(Fault::of(ACCESS, text))
            }
        }
    }

    /// Whether the caller may see a job.
    pub(crate) fn sees(&self, caller: &Caller, job: &Description) -> bool {
        let Some(user) = &caller.user else { return self.viewers.admits("", &[]) };
        *user.name == *job.user
            || self.viewers.admits(&user.name, &user.groups)
            || self.administers(user, is_certified(caller))
    }

    /// Fails unless the caller may see the job.
    pub(crate) fn must_see(&self, caller: &Caller, job: &Description) -> Result<(), Fault> {
        self.sees(caller, job).then_some(()).ok_or_else(|| refused(caller, "see", job))
    }

    /// Fails unless the caller may kill and change the job.
    pub(crate) fn must_change(&self, caller: &Caller, job: &Description) -> Result<(), Fault> {
        let user = Access::user(caller)?;
        let may = *user.name == *job.user || self.administers(user, is_certified(caller));
        may.then_some(()).ok_or_else(|| refused(caller, "change", job))
    }

    /// Whether the user administers the service. One whom a certificate names is not the service itself, even by its
    /// name: only the list makes it an administrator.
    fn administers(&self, user: &User, is_certified: bool) -> bool {
        !is_certified && user.name == self.service_user
            || self.administrators.admits(&user.name, &user.groups)
    }
}

fn is_certified(caller: &Caller) -> bool {
    caller.peer.own_user().is_some()
}

fn refused(caller: &Caller, what: &str, job: &Description) -> Fault {
    let user = caller.user.as_ref().map_or("nobody", |user| &user.name);
    let Description { id, user: owner, .. } = job;
    Fault::of(ACCESS, format!("user {user} may not {what} {id}, which is a job of {owner}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::submission::tests::submission;

    fn caller(name: &str, groups: &[&str]) -> Caller {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let user = Some(User { name: name.to_owned(), groups });
        Caller { peer: corona_access::Peer::plain(([127, 0, 0, 1], 1).into()), user }
    }

    #[test]
    fn owners_and_administrators_change_a_job_and_others_do_not() {
        let job = submission(&[], 1).description;
        let access = Access {
            service_user: "corona".into(),
            submitters: AccessList::parse("alice staff"),
            viewers: AccessList::parse(""),
            administrators: AccessList::parse("root ops"),
        };
        for (who, changes, sees, submits) in [
            (caller("alice", &[]), true, true, true),
            (caller("bob", &["staff"]), false, false, true),
            (caller("bob", &["ops"]), true, true, true),
            (caller("root", &[]), true, true, true),
            (caller("corona", &[]), true, true, true),
            (caller("", &["ops"]), false, false, false),
            (
                Caller { peer: corona_access::Peer::plain(([127, 0, 0, 1], 1).into()), user: None },
                false,
                false,
                false,
            ),
        ] {
            assert_eq!(access.must_change(&who, &job).is_ok(), changes, "{who:?}");
            if who.user.as_ref().is_none_or(|user| !user.name.is_empty()) {
                assert_eq!(access.sees(&who, &job), sees, "{who:?}");
            }
            assert_eq!(access.submitter(&who).is_ok(), submits, "{who:?}");
        }
        let user = |name: &str| User { name: name.to_owned(), groups: vec![] };
        assert!(access.administers(&user("corona"), false));
        assert!(!access.administers(&user("corona"), true), "a certificate for that user");
        assert!(access.administers(&user("root"), true), "on the list");
        let text = access.must_change(&caller("bob", &[]), &job).unwrap_err().to_string();
        assert!(text.contains("user bob may not change job_"), "{text}");
    }
}
