//! The audit trail as whoever has to prove something sees it: exported, verified here and elsewhere, receipted, erased.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use axum::http::StatusCode;
use harness::{BEN, BOT_KEY, World, at_once, begin, refund};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use undersign::storage::Db;

/// A refund that was approved and executed, then a call that was withdrawn.
async fn story(world: &World) -> String {
    let (action, token) = world.approved().await;
    let agent = world.agent(BOT_KEY);
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "upstream");
    let other = agent.call("delete_customer", json!({ "customer_id": "C-1" })).await.action_id();
    agent.cancel(&other).await;
    action
}

fn rows(export: &[Value]) -> Vec<&Value> {
    export.iter().filter(|line| line.get("undersign").is_none()).collect()
}

fn kinds(rows: &[&Value]) -> Vec<String> {
    rows.iter().map(|row| row["kind"].as_str().unwrap().to_owned()).collect()
}

/// The keys that `audit key` prints.
fn public_key(world: &World) -> String {
    let output = world.run(&["audit", "key", "--json", "--config"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let keys: Value = serde_json::from_slice(&output.stdout).unwrap();
    keys["keys"][0]["public_key"].as_str().unwrap().to_owned()
}

/// `audit verify` of a file, as somebody without any configuration runs it.
fn verify_file(path: &str, arguments: &[&str]) -> (i32, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_undersign"))
        .args(["audit", "verify", "--json", "--file", path])
        .args(arguments)
        .env_clear()
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap(), report)
}

fn jsonl(lines: &[Value]) -> String {
    lines.iter().map(|line| line.to_string() + "\n").collect()
}

type Change = fn(&mut Vec<Value>, usize);

#[tokio::test]
async fn an_export_is_a_signed_chain_that_another_program_recomputes() {
    let mut world = World::start().await;
    let action = story(&world).await;
    world.stop().await;
    let export = world.export(&[]);
    let rows = rows(&export);
    let mut ends: std::collections::BTreeMap<String, (i64, String)> = std::collections::BTreeMap::new();
    for row in &rows {
        let tenant = row["tenant"].as_str().unwrap().to_owned();
        let (seq, prev) = ends.get(&tenant).cloned().unwrap_or((0, "0".repeat(64)));
        assert_eq!((row["seq"].as_i64().unwrap(), row["prev"].as_str().unwrap()), (seq + 1, prev.as_str()));
        let at = row["at"].as_str().unwrap();
        assert!(at.len() == 27 && at.ends_with('Z'), "{at}");
        // Another implementation of RFC 8785 than the program's.
        let mut hashed = (*row).clone();
        for name in ["hash", "action_subject", "preview", "facts", "salt"] {
            hashed.as_object_mut().unwrap().remove(name);
        }
        let hash = hex::encode(Sha256::digest(serde_json_canonicalizer::to_vec(&hashed).unwrap()));
        assert_eq!(row["hash"], hash, "{row}");
        ends.insert(tenant, (seq + 1, hash));
    }
    assert_eq!(ends.len(), 2, "both tenants have loaded a policy");
    let of_action: Vec<&Value> =
        rows.iter().copied().filter(|row| row["action_id"] == action.as_str()).collect();
    assert_eq!(
        kinds(&of_action),
        ["parked", "posted", "voted", "approved", "token_issued", "claimed", "succeeded"]
    );
    let checkpoints: Vec<&Value> = export.iter().skip(rows.len()).collect();
    assert_eq!(checkpoints.len(), 2, "the service signs when it stops");
    for checkpoint in checkpoints {
        assert_eq!(checkpoint["undersign"], "checkpoint/1");
        let (seq, hash) = &ends[checkpoint["tenant"].as_str().unwrap()];
        assert_eq!((&checkpoint["seq"], &checkpoint["hash"]), (&json!(seq), &json!(hash)));
        assert_eq!(
            (&checkpoint["key_id"], &checkpoint["public_key"]),
            (&json!("k1"), &json!(public_key(&world)))
        );
    }

    let (code, report) = world.verify(&[]);
    assert_eq!((code, &report["ok"]), (0, &json!(true)), "{report}");
    world.write("export.jsonl", &jsonl(&export));
    let file = world.path_text("export.jsonl");
    let (code, report) = verify_file(&file, &["--public-key", &public_key(&world)]);
    assert_eq!((code, &report["tenants"][0]["signed_by"]), (0, &json!(public_key(&world))), "{report}");
    let (code, report) = verify_file(&file, &[]);
    assert_eq!(code, 1, "nobody vouches for the key: {report}");
    let (code, report) = verify_file(&file, &["--allow-unnamed-key"]);
    assert_eq!(code, 0);
    // A chain made anew, without the checkpoints that would give it away.
    let bare: Vec<Value> = export.iter().filter(|line| line.get("undersign").is_none()).cloned().collect();
    world.write("bare.jsonl", &jsonl(&bare));
    let (code, told) = verify_file(&world.path_text("bare.jsonl"), &["--public-key", &public_key(&world)]);
    assert_eq!((code, &told["faults"][0]["what"]), (1, &json!("signature")), "{told}");
    assert!(report["tenants"][0]["signed_by"].as_str().unwrap().starts_with("an unnamed key"), "{report}");
    let (code, _) = verify_file(&file, &["--public-key", &"5f".repeat(32)]);
    assert_ne!(code, 0);
    let part = world.export(&["--tenant", "acme", "--after", "3"]);
    assert!(part[0]["seq"] == 4 && part.iter().all(|line| line["tenant"] == "acme"));
    world.write("part.jsonl", &jsonl(&part));
    let key = public_key(&world);
    assert_eq!(verify_file(&world.path_text("part.jsonl"), &["--after", "3", "--public-key", &key]).0, 0);
    assert_eq!(verify_file(&world.path_text("part.jsonl"), &["--public-key", &key]).0, 1);
    world.finish().await;
}

#[tokio::test]
async fn a_changed_export_is_told_by_tenant_and_seq() {
    let mut world = World::start().await;
    story(&world).await;
    world.stop().await;
    let export = world.export(&["--tenant", "acme"]);
    let parked = export.iter().position(|row| row["kind"] == "parked").unwrap();
    let cases: [(&str, i64, Change); 7] = [
        ("edited", 0, |lines, at| lines[at]["risk"] = json!("medium")),
        ("edited", 0, |lines, at| lines[at]["action_subject"]["arguments"]["amount_cents"] = json!(1)),
        ("edited", 0, |lines, at| lines[at]["preview"]["title"] = json!("Refund order A-18")),
        ("edited", 0, |lines, at| lines[at]["salt"] = Value::Null),
        ("missing", 0, |lines, at| drop(lines.remove(at))),
        ("reordered", 0, |lines, at| lines.swap(at, at + 1)),
        ("truncated", 2, |lines, at| drop(lines.drain(at + 2..lines.len() - 1))),
    ];
    for (at, (what, further, change)) in cases.iter().enumerate() {
        let mut lines = export.clone();
        change(&mut lines, parked);
        world.write("changed.jsonl", &jsonl(&lines));
        let (code, report) =
            verify_file(&world.path_text("changed.jsonl"), &["--public-key", &public_key(&world)]);
        let expected = json!({ "tenant": "acme", "seq": export[parked]["seq"].as_i64().unwrap() + further, "what": what });
        let fault = &report["faults"][0];
        let found = json!({ "tenant": fault["tenant"], "seq": fault["seq"], "what": fault["what"] });
        assert_eq!((code, found), (1, expected), "change {at}: {report}");
    }
    // A name twice is read differently by different programs.
    let twice = jsonl(&export).replacen("\"risk\":", "\"risk\":\"medium\",\"risk\":", 1);
    world.write("changed.jsonl", &twice);
    assert_eq!(verify_file(&world.path_text("changed.jsonl"), &[]).0, 1);
    world.write("changed.jsonl", "");
    assert_eq!(verify_file(&world.path_text("changed.jsonl"), &[]).0, 1, "nothing proves nothing");
    assert_eq!(verify_file(&world.path_text("nowhere.jsonl"), &[]).0, 2);
    assert_eq!(verify_file(&world.path_text("changed.jsonl"), &["--public-key", "x"]).0, 2);
    world.finish().await;
}

#[tokio::test]
async fn replicas_that_sequence_at_once_do_not_fork_the_chain() {
    let mut world = World::start().await;
    world.add_replica().await;
    let url = world.environment()[0].1.clone();
    let (db, writers) = (world.db.clone(), 6);
    let hands = at_once(12, move |hand| {
        let (db, url) = (db.clone(), url.clone());
        async move {
            if hand < writers {
                for _ in 0..40 {
                    sqlx::query(
                        "INSERT INTO audit_events (tenant, kind, body) VALUES ('acme', 'expired', '{}')",
                    )
                    .execute(&db)
                    .await
                    .unwrap();
                }
            } else {
                let own = Db::connect(&url, 2).await.unwrap();
                for _ in 0..40 {
                    own.sequence().await.unwrap();
                }
                own.close().await;
            }
        }
    });
    hands.await;
    let export = world.export(&["--tenant", "acme"]);
    assert!(rows(&export).len() > 240);
    let (code, report) = world.verify(&[]);
    assert_eq!(code, 0, "{report}");
    world.finish().await;
}

#[tokio::test]
async fn an_event_that_commits_late_gets_its_place_then() {
    let world = World::start().await;
    let insert =
        "INSERT INTO audit_events (tenant, kind, body) VALUES ('acme', 'expired', '{}') RETURNING id";
    let mut late = begin(&world.db).await;
    let first: i64 = sqlx::query_scalar(insert).fetch_one(&mut *late).await.unwrap();
    let second: i64 = sqlx::query_scalar(insert).fetch_one(&world.db).await.unwrap();
    assert!(first < second);
    let before = rows(&world.export(&["--tenant", "acme"])).len();
    late.commit().await.unwrap();
    assert_eq!(rows(&world.export(&["--tenant", "acme"])).len(), before + 1);
    let seq_of = |id: i64| {
        sqlx::query_scalar::<_, i64>("SELECT seq FROM audit_chain WHERE event_id = $1")
            .bind(id)
            .fetch_one(&world.db)
    };
    assert!(seq_of(first).await.unwrap() > seq_of(second).await.unwrap());
    assert_eq!(world.verify(&[]).0, 0);
    world.finish().await;
}

fn follow(world: &World, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_undersign"))
        .args(["audit", "export", "--follow", "--tenant", "acme"])
        .args(arguments)
        .arg("--config")
        .arg(world.config_path())
        .envs(world.environment())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn a_follower_gets_rows_as_they_come_and_ends_when_told() {
    let world = World::start().await;
    world.park().await;
    world.wait_audit("posted", 1).await;
    let have = rows(&world.export(&["--tenant", "acme"])).len();
    let mut child = follow(&world, &["--after", &have.to_string()]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    world.agent(BOT_KEY).call("delete_customer", json!({ "customer_id": "C-1" })).await;
    let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&line["seq"], &line["kind"]), (&json!(have + 1), &json!("parked")));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let mut child = follow(&world, &[]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0), "a closed pipe is noticed though nothing more comes");
    world.finish().await;
}

#[tokio::test]
async fn a_receipt_is_checked_by_whoever_has_it_and_its_key() {
    let mut world = World::start().await;
    let action = story(&world).await;
    let key = public_key(&world);
    let output = world.run(&["audit", "receipt", &action, "--config"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let receipt: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = receipt["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7);
    assert!(rows.iter().all(|row| row["action_id"] == action.as_str()), "nothing of other actions");
    let check = |receipt: &Value, arguments: &[&str]| {
        world.write("receipt.json", &serde_json::to_string_pretty(receipt).unwrap());
        verify_file(&world.path_text("receipt.json"), arguments)
    };
    let (code, report) = check(&receipt, &["--public-key", &key]);
    assert_eq!((code, &report["tenants"][0]["signed_by"]), (0, &json!(key)), "{report}");
    assert_eq!(check(&receipt, &[]).0, 1, "nobody vouches for the key");
    assert_eq!(check(&receipt, &["--allow-unnamed-key"]).0, 0);
    let compact = format!("{receipt}\n{{\"seq\":1}}\n");
    world.write("receipt.json", &compact);
    let more = verify_file(&world.path_text("receipt.json"), &["--public-key", &key]);
    assert_eq!((more.0, &more.1["faults"][0]["what"]), (1, &json!("malformed")), "{}", more.1);
    let mut edited = receipt.clone();
    edited["rows"][2]["verdict"] = json!("deny");
    let (code, report) = check(&edited, &["--public-key", &key]);
    assert_eq!((code, &report["faults"][0]["seq"]), (1, &edited["rows"][2]["seq"]), "{report}");
    let mut short = receipt.clone();
    short["rows"].as_array_mut().unwrap().remove(2);
    assert_eq!(check(&short, &["--public-key", &key]).0, 1);
    let unknown = world.run(&["audit", "receipt", "019a0000-0000-7000-8000-000000000000", "--config"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert_eq!(world.run(&["audit", "receipt", "x", "--config"]).status.code(), Some(2));
    // Nothing is signed over a chain that does not hold.
    world.stop().await;
    world.rewrite("UPDATE audit_events SET kind = 'denied' WHERE kind = 'approved'").await;
    assert_eq!(world.run(&["audit", "receipt", &action, "--config"]).status.code(), Some(1));
}

/// Every row of every table, as text; binary columns as they are printed and as what they hold.
async fn dump(world: &World) -> String {
    let tables: Vec<String> =
        sqlx::query_scalar("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
            .fetch_all(&world.db)
            .await
            .unwrap();
    let mut dump = String::new();
    for table in tables {
        let sql = sqlx::AssertSqlSafe(format!("SELECT t::text FROM \"{table}\" t"));
        let rows: Vec<String> = sqlx::query_scalar(sql).fetch_all(&world.db).await.unwrap();
        for row in rows {
            for piece in row.split("\\x").skip(1) {
                let digits: String = piece.chars().take_while(char::is_ascii_hexdigit).collect();
                dump += &String::from_utf8_lossy(&hex::decode(&digits).unwrap_or_default());
                dump.push('\n');
            }
            dump += &row;
            dump.push('\n');
        }
    }
    dump
}

#[tokio::test]
async fn erased_arguments_are_nowhere_and_the_chain_still_holds() {
    let mut world = World::start().await;
    let mut arguments = refund();
    arguments["note"] = json!("canary-7f3a");
    let agent = world.agent(BOT_KEY);
    let action = agent.call("refund_order", arguments.clone()).await.action_id();
    let erase = |action: &str| world.run(&["audit", "erase", action, "--config"]);
    assert_eq!(erase(&action).status.code(), Some(1), "pending");
    let card = world.card_where(|card| card.text.contains(&action)).await;
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, StatusCode::OK);
    let token = agent.approval(&action, 30).await.token().unwrap();
    assert_eq!(erase(&action).status.code(), Some(1), "approved");
    assert_eq!(agent.call_with_token("refund_order", arguments, &token).await.code(), "upstream");
    world
        .rewrite(&format!(
            "UPDATE intents SET result = convert_to('\"canary-7f3a\"', 'UTF8') WHERE action_id = '{action}'"
        ))
        .await;
    for doubtful in ["outcome_unknown", "executing"] {
        world.rewrite(&format!("UPDATE actions SET state = '{doubtful}' WHERE id = '{action}'")).await;
        assert_eq!(erase(&action).status.code(), Some(1), "{doubtful}");
    }
    world.rewrite(&format!("UPDATE actions SET state = 'succeeded' WHERE id = '{action}'")).await;
    let before = dump(&world).await;
    assert!(before.matches("canary-7f3a").count() > 2, "arguments, audit subject and result hold it");

    let erased = erase(&action);
    assert!(erased.status.success(), "{}", String::from_utf8_lossy(&erased.stderr));
    let after = dump(&world).await;
    assert!(!after.contains("canary-7f3a") && !after.contains(&hex::encode("canary-7f3a")));
    assert_eq!(erase(&action).status.code(), Some(0), "erased already");
    assert_eq!(erase("019a0000-0000-7000-8000-000000000000").status.code(), Some(1), "unknown");
    world.stop().await;
    let export = world.export(&["--tenant", "acme"]);
    let rows = rows(&export);
    let parked = rows.iter().find(|row| row["kind"] == "parked").unwrap();
    for name in ["action_subject", "preview", "facts", "salt"] {
        assert_eq!(parked.get(name), Some(&Value::Null), "{name}");
    }
    assert!(parked["action_digest"].is_string());
    assert_eq!(kinds(&rows).iter().filter(|kind| *kind == "erased").count(), 1);
    let (code, report) = world.verify(&[]);
    assert_eq!((code, &report["tenants"][0]["erased"]), (0, &json!(1)), "{report}");
    world.write("export.jsonl", &jsonl(&export));
    assert_eq!(verify_file(&world.path_text("export.jsonl"), &["--public-key", &public_key(&world)]).0, 0);
    // A receipt can still be had.
    world.write(
        "receipt.json",
        &String::from_utf8(world.run(&["audit", "receipt", &action, "--config"]).stdout).unwrap(),
    );
    let (code, report) =
        verify_file(&world.path_text("receipt.json"), &["--public-key", &public_key(&world)]);
    assert_eq!(code, 0, "{report}");
    // The intent went with its action, so the shop's ledger is held against nothing.
    assert_eq!(world.state_or_none(&action).await, None);
}

#[tokio::test]
async fn l05_a_dump_holds_nothing_that_can_be_used() {
    let world = World::start().await;
    let (action, token) = world.approved().await;
    let dump = dump(&world).await;
    assert!(dump.contains(&action), "the dump is one of this database");
    let mac = token.rsplit('.').next().unwrap();
    let secrets = [
        token.as_str(),
        mac,
        BOT_KEY,
        harness::SIGNING_SECRET,
        "xoxb-harness",
        "upstream-credential",
        "0123456789abcdef0123456789abcdef",
    ];
    for secret in secrets {
        assert!(!dump.contains(secret) && !dump.contains(&hex::encode(secret)), "{secret}");
    }
    // With everything that is in the row, and any key but the right one, no token comes out that opens anything.
    let nonce: Vec<u8> = sqlx::query_scalar("SELECT nonce FROM tokens").fetch_one(&world.db).await.unwrap();
    let digest: Vec<u8> = sqlx::query_scalar("SELECT action_digest FROM actions WHERE id = $1::uuid")
        .bind(&action)
        .fetch_one(&world.db)
        .await
        .unwrap();
    for key in [nonce.clone(), digest.clone(), vec![0; 32]] {
        use undersign::domain::{digest::ActionDigest, ids::ActionId, token};
        let ring =
            token::TokenKeys::new(vec![token::TokenKey { id: "k1".to_owned(), secret: key.into() }]).unwrap();
        let forged = ring.mint(&token::Bound {
            action: ActionId::parse(&action).unwrap(),
            digest: &ActionDigest::from_stored(&digest).unwrap(),
            tenant: &"acme".into(),
            agent: &"support-bot".into(),
            nonce: &token::Nonce::new(nonce.clone().try_into().unwrap()),
        });
        let answer = world.agent(BOT_KEY).call_with_token("refund_order", refund(), forged.reveal()).await;
        assert_eq!(answer.code(), "invalid_token");
    }
    assert_eq!(world.shop.ledger().iter().filter(|call| call.tool == "refund_order").count(), 0);
    world.finish().await;
}
