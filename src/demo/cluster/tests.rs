use std::fs;

use super::*;

/// A state directory of the test's own, under the system's temporary directory, with the real `PATH`.
fn env(name: &str) -> ClusterEnv {
    let temp_dir = std::env::temp_dir();
    ClusterEnv {
        path: std::env::var_os("PATH"),
        state: Some(temp_dir.join(format!("undersign-test-{name}-{}", std::process::id()))),
        temp_dir,
        ..ClusterEnv::default()
    }
}

#[test]
fn a_temporary_cluster_comes_takes_databases_and_goes() {
    let cluster = Cluster::temporary(&env("temporary")).unwrap();
    let directory = cluster.directory().to_owned();
    cluster.create_database("one").unwrap();
    cluster.create_database("one").unwrap();
    cluster.execute("one", "CREATE TABLE t (x int); CREATE TABLE u (x int)").unwrap();
    cluster.execute("one", "DROP TABLE t; DROP TABLE v").unwrap_err();
    cluster.execute("one", "TABLE t").unwrap();
    wire::connect(&cluster.socket(), ROLE, "undersign").unwrap();
    let refused = cluster.create_database("One\"; DROP").unwrap_err();
    assert!(matches!(refused, ClusterError::DatabaseName(_)));
    let absent = wire::connect(&cluster.socket(), ROLE, "absent").err().unwrap();
    assert!(matches!(absent, ClusterError::Sql { ref code, .. } if code == "3D000"), "{absent}");
    assert!(cluster.database_url("one").starts_with("postgres://undersign@localhost"));
    cluster.stop().unwrap();
    assert!(!directory.exists());
}

#[test]
fn a_dropped_temporary_cluster_leaves_nothing() {
    let cluster = Cluster::temporary(&env("dropped")).unwrap();
    let (directory, socket) = (cluster.directory().to_owned(), cluster.socket());
    drop(cluster);
    assert!(!directory.exists());
    assert!(wire::connect(&socket, ROLE, "postgres").is_err());
}

#[test]
fn a_durable_cluster_is_reused_while_its_server_lives_and_keeps_what_was_written() {
    let env = env("durable");
    let first = Cluster::durable(&env).unwrap();
    let socket = first.socket();
    wire::connect(&socket, ROLE, "undersign").unwrap().execute("CREATE TABLE kept (x int)").unwrap();

    let second = Cluster::durable(&env).unwrap_err();
    assert!(matches!(second, ClusterError::InUse(_)), "{second}");

    // As after a crash of the application: the server stays up, and a leftover of a killed initdb lies about.
    drop(first);
    fs::create_dir(env.state.as_ref().unwrap().join("data.tmp")).unwrap();
    let found = Cluster::durable(&env).unwrap();
    wire::connect(&socket, ROLE, "undersign").unwrap().execute("TABLE kept").unwrap();
    found.stop().unwrap();
    assert!(wire::connect(&socket, ROLE, "postgres").is_err());

    let restarted = Cluster::durable(&env).unwrap();
    wire::connect(&socket, ROLE, "undersign").unwrap().execute("TABLE kept").unwrap();

    // As after a crash of both: the pid file is stale, and the log must be replayed.
    let pid = fs::read_to_string(restarted.directory().join("data/postmaster.pid")).unwrap();
    let pid = pid.lines().next().and_then(|line| line.parse().ok()).and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::KILL).unwrap();
    drop(restarted);
    let recovered = Cluster::durable(&env).unwrap();
    wire::connect(&socket, ROLE, "undersign").unwrap().execute("TABLE kept").unwrap();
    recovered.stop().unwrap();

    let data = env.state.as_ref().unwrap().join("data");
    fs::write(data.join("PG_VERSION"), "9\n").unwrap();
    let other = Cluster::durable(&env).unwrap_err().to_string();
    assert!(other.contains("was made by PostgreSQL 9") && other.contains("UNDERSIGN_PG_BIN"), "{other}");
    fs::remove_dir_all(env.state.unwrap()).unwrap();
}

#[test]
fn the_last_five_lines_are_told() {
    assert_eq!(last_lines("1\n2\n3\n4\n5\n6\n"), "2\n3\n4\n5\n6");
    assert_eq!(last_lines(""), "");
}
