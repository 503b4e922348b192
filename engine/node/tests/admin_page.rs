//! The page at `/` of the admin listener, in a real browser: what somebody sees of a quorum at
//! work, without a leader, and of a node that is down.

#![allow(clippy::disallowed_methods)] // tests have their own time

mod common;

use common::{Browser, Cluster, Load, s, wait_for};

/// A page asks once a second, and elections take their time.
const LIMIT: std::time::Duration = s(30);

fn wait_for_text(browser: &Browser, selector: &str, words: &str) {
    let what = format!("{words:?} in {selector} (is {:?})", browser.text(selector));
    wait_for(&what, LIMIT, || {
        browser.text(selector).contains(words).then_some(())
    });
}

/// The texts of a column of the table of replicas.
fn column(browser: &Browser, number: usize) -> Vec<String> {
    let script = format!(
        "return [...document.querySelectorAll('#replicas td:nth-child({number})')]\
         .map(cell => cell.innerText);"
    );
    let cells = browser.run(&script);
    let cells = cells.as_array().cloned().unwrap_or_default();
    cells
        .iter()
        .filter_map(|cell| cell.as_str().map(str::to_owned))
        .collect()
}

#[test]
fn the_page_shows_the_quorum_live_and_says_what_is_wrong() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let follower = cluster.nodes().iter().find(|node| node.id != leader);
    let follower = follower.expect("three voters").id;
    let browser = Browser::start();

    // At the leader, under load.
    let load = Load::start(&cluster.bootstrap(), 2);
    browser.open(&format!("http://{}/", cluster.node(leader).admin));
    wait_for_text(&browser, "#badge", "ready");
    wait_for_text(&browser, "#node", &format!("node {leader}"));
    wait_for_text(&browser, "#leader", "this node");
    wait_for_text(&browser, "#latency-name", "Commit latency");
    wait_for_text(&browser, "#latency", "99 %:");
    wait_for("both followers follow, and hardly lag", LIMIT, || {
        let following = column(&browser, 2);
        let following = following.iter().filter(|state| state.contains("follows"));
        (following.count() == 2 && column(&browser, 6).iter().any(|ago| ago.contains("ms ago")))
            .then_some(())
    });
    wait_for("both lines are plotted", LIMIT, || {
        let paths = "return document.querySelectorAll('#latency-plot path').length;";
        (browser.run(paths).as_u64() >= Some(2)).then_some(())
    });
    wait_for("some seconds of history", LIMIT, || {
        (browser.run("return state.samples.length;").as_u64() > Some(8)).then_some(())
    });
    browser.picture("leader-light");
    browser.prefer("dark");
    browser.picture("leader-dark");
    browser.prefer("light");
    browser.resize(420, 900);
    browser.picture("leader-narrow");
    let overflow = "return document.documentElement.scrollWidth - innerWidth;";
    assert!(
        browser.run(overflow).as_i64() <= Some(0),
        "wider than a telephone"
    );
    browser.resize(1160, 1060);
    assert_eq!(browser.complaints(), Vec::<String>::new());

    // At a follower: what the leader knows is shown there as well.
    browser.open(&format!("http://{}/", cluster.node(follower).admin));
    wait_for_text(&browser, "#leader", &format!("node {leader}"));
    wait_for_text(&browser, "#view", "as the leader sees them");
    wait_for_text(&browser, "#latency-name", "Flush latency");
    wait_for("every log end is known", LIMIT, || {
        let ends = column(&browser, 4);
        (ends.len() == 3 && ends.iter().all(|end| end != "-")).then_some(())
    });
    browser.picture("follower");
    assert_eq!(load.finish().failed, Vec::<String>::new());

    // Without a majority.
    for id in 1..=3 {
        if id != follower {
            cluster.kill(id);
        }
    }
    wait_for_text(&browser, "#badge", "not ready");
    wait_for_text(
        &browser,
        "#notice",
        "leader: none; this node stands for election",
    );
    wait_for_text(&browser, "#leader", "none");
    wait_for_text(&browser, "#view", "as far as this node knows");
    browser.picture("no-leader");
    assert_eq!(browser.complaints(), Vec::<String>::new());

    // Down: what was known is still there to be read.
    cluster.kill(follower);
    wait_for_text(&browser, "#badge", "no answer");
    wait_for_text(&browser, "#notice", "does not answer");
    assert_eq!(column(&browser, 1).len(), 3);
    browser.picture("down");

    // And back again, by itself.
    cluster.restart(follower);
    wait_for_text(&browser, "#badge", "not ready");
}
