use super::*;
use crate::chat::slack::SlackApp;
use crate::chat::slack::tests::{ALICE, api, app, fixture, grid_app, workspace};
use crate::demo::slack::{FakeSlack, Fault, SlackUser, SlackUsergroup};

const GROUP: &str = "S0GROUP001";
const HOME: Option<&str> = Some("T0HOME0001");

async fn start() -> (FakeSlack, SlackDirectory) {
    let slack = workspace(None, false).await;
    let directory = SlackDirectory::new(api(&slack, app()));
    (slack, directory)
}

fn alice() -> SlackUser {
    SlackUser::member(ALICE, "alice", "T0HOME0001")
}

#[tokio::test]
async fn a_group_has_its_members_for_thirty_seconds() {
    let (slack, directory) = start().await;
    let start = Instant::now();
    let alice = BTreeSet::from([ALICE.to_owned()]);
    assert_eq!(directory.members(GROUP).await, Ok(alice.clone()));
    slack.set_usergroup(SlackUsergroup::new(GROUP, &[]));
    assert_eq!(directory.members(GROUP).await, Ok(alice));
    assert_eq!(directory.members_at(GROUP, start + Duration::from_secs(40)).await, Ok(BTreeSet::new()));
    let calls = slack.requests();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].arguments, serde_json::json!({"usergroup": GROUP, "include_disabled": "false"}));
}

#[tokio::test]
async fn a_disabled_or_unknown_group_is_empty_and_not_everyone() {
    let (slack, directory) = start().await;
    slack.set_usergroup(SlackUsergroup { disabled: true, ..SlackUsergroup::new(GROUP, &[ALICE]) });
    assert_eq!(directory.members(GROUP).await, Ok(BTreeSet::new()));
    assert_eq!(directory.members("S0ABSENT01").await, Ok(BTreeSet::new()));
}

#[tokio::test]
async fn a_group_that_cannot_be_asked_about_is_not_answered_from_memory() {
    let (slack, directory) = start().await;
    let start = Instant::now();
    directory.members(GROUP).await.unwrap();
    let faults = [
        Fault::RateLimited(30),
        Fault::Http(503),
        Fault::Error("plan_upgrade_required".to_owned()),
        Fault::Drop,
        Fault::GarbageAfter,
    ];
    for (i, fault) in (1_u64..).zip(&faults) {
        slack.fail("usergroups.users.list", 1, fault);
        let later = start + Duration::from_secs(40 * i);
        assert_eq!(directory.members_at(GROUP, later).await, Err(DirectoryDown), "{fault:?}");
    }
    let later = start + Duration::from_secs(1_000);
    assert_eq!(directory.members_at(GROUP, later).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_full_member_of_the_workspace_counts() {
    let (slack, directory) = start().await;
    assert_eq!(directory.standing(ALICE, HOME).await, Ok(AccountStanding::Member));
    assert_eq!(directory.standing(ALICE, None).await, Ok(AccountStanding::Member));
    assert_eq!(directory.standing(ALICE, Some("T0OTHER001")).await, Ok(AccountStanding::Outsider));
    assert_eq!(slack.requests().len(), 1);
    assert_eq!(directory.standing("U0ABSENT01", HOME).await, Ok(AccountStanding::Outsider));
    assert_eq!(directory.standing("USLACKBOT", HOME).await, Ok(AccountStanding::Outsider));
}

#[tokio::test]
async fn everyone_else_does_not() {
    let (slack, directory) = start().await;
    let mut others = vec![
        SlackUser { deleted: true, ..alice() },
        SlackUser { is_bot: true, ..alice() },
        SlackUser { is_app_user: true, ..alice() },
        SlackUser { is_workflow_bot: true, ..alice() },
        SlackUser { is_connector_bot: true, ..alice() },
        SlackUser { is_restricted: true, ..alice() },
        SlackUser { is_ultra_restricted: true, ..alice() },
        SlackUser { is_stranger: Some(true), ..alice() },
        SlackUser { team_id: "T0OTHER001".to_owned(), ..alice() },
    ];
    for missing in [
        "id",
        "team_id",
        "deleted",
        "is_bot",
        "is_app_user",
        "is_workflow_bot",
        "is_connector_bot",
        "is_restricted",
        "is_ultra_restricted",
    ] {
        others.push(SlackUser { without: vec![missing.to_owned()], ..alice() });
    }
    for (i, other) in (0..).zip(others) {
        // One key each, so that none is answered from memory.
        let id = format!("U0OTHER{i:03}");
        let other = SlackUser { id: id.clone(), ..other };
        slack.set_user(other.clone());
        assert_eq!(directory.standing(&id, HOME).await, Ok(AccountStanding::Outsider), "{other:?}");
    }
    let not_a_stranger = SlackUser { id: "U0NEAR0001".to_owned(), is_stranger: Some(false), ..alice() };
    slack.set_user(not_a_stranger);
    assert_eq!(directory.standing("U0NEAR0001", HOME).await, Ok(AccountStanding::Member));
}

#[tokio::test]
async fn a_person_who_left_is_refused_within_the_minute() {
    let (slack, directory) = start().await;
    let start = Instant::now();
    assert_eq!(directory.standing(ALICE, HOME).await, Ok(AccountStanding::Member));
    slack.set_user(SlackUser { deleted: true, ..alice() });
    let later = start + Duration::from_secs(40);
    assert_eq!(directory.standing_at(ALICE, HOME, later).await, Ok(AccountStanding::Outsider));
    slack.fail("users.info", 1, &Fault::Error("internal_error".to_owned()));
    let later = start + Duration::from_secs(80);
    assert_eq!(directory.standing_at(ALICE, HOME, later).await, Err(DirectoryDown));
}

#[tokio::test]
async fn an_organisation_names_its_workspace_and_both_ids_are_home() {
    let slack = workspace(Some("E0ORG00001"), true).await;
    let directory = SlackDirectory::new(api(&slack, grid_app()));
    assert_eq!(directory.members(GROUP).await.unwrap().len(), 1);
    assert_eq!(slack.requests()[0].arguments["team_id"], "T0HOME0001");
    for home in [HOME, Some("E0ORG00001"), None] {
        assert_eq!(directory.standing(ALICE, home).await, Ok(AccountStanding::Member));
    }
    let of_org = SlackUser { team_id: "E0ORG00001".to_owned(), id: "U0ORG00001".to_owned(), ..alice() };
    slack.set_user(of_org);
    assert_eq!(directory.standing("U0ORG00001", HOME).await, Ok(AccountStanding::Member));
    let elsewhere = SlackDirectory::new(api(&slack, SlackApp { enterprise_id: None, ..app() }));
    assert_eq!(elsewhere.standing("U0ORG00001", HOME).await, Ok(AccountStanding::Outsider));
}

#[test]
fn recorded_answers_are_read_and_what_they_leave_out_counts_against_the_person() {
    for case in fixture("users_info_variants")["cases"].as_array().unwrap() {
        let user = &case["body"]["user"];
        assert_eq!(person(user, user["id"].as_str().unwrap()), Person::Nobody, "{}", case["name"]);
    }
}
