#!/usr/bin/env bash
# A real Apache Kafka (KRaft) from its jars, without Docker: Java 17 and, for the first start, Maven are all it needs.
#
#   kafka.sh start [NODES]      1 (default) or 3 combined broker+controller nodes; prints the bootstrap servers
#   kafka.sh hold [NODES]       the same, then waits for the end of its input, and stops and deletes everything
#   kafka.sh stop               stop every node started from $KAFKA_DIR
#   kafka.sh kill|pause|resume|restart NODE   SIGKILL, SIGSTOP, SIGCONT, start again (NODE counts from 1)
#   kafka.sh fetch              download the jars and nothing else
#   kafka.sh tool CLASS ARGS…   an org.apache.kafka.tools class, e.g. TopicCommand, ConsumerGroupCommand
#   kafka.sh java ARGS…         a program of one's own with Kafka's jars
#
# KAFKA_DIR   data, logs and pids          (default /tmp/kafka-local); clusters side by side need one each
# KAFKA_JARS  downloaded jars, 54 MB       (default ~/.cache/kafka-local/VERSION); shared safely
# KAFKA_PORT  the first node's port, then +10 a node; the controller listens one above (default 19092)
# KAFKA_HEAP  heap of one node             (default 512m)
# KAFKA_JVM   JVM options of a node        (default: quick to start rather than quick in the long run; benchmarks set
#             it to the empty string)
# KAFKA_PROPS extra server properties, one a line
# KAFKA_CA, KAFKA_CERT  PEM of an authority, and of the brokers' key and certificates: further listeners, SASL_SSL two above
#             the node's port and SSL with client certificates three above, and ACLs. Whoever comes by the plain listener
#             may do everything. PLAIN knows the users app and other (password: the name and -secret); those of SCRAM are
#             made by an admin client; OAUTHBEARER takes unsigned tokens
# KAFKA_CONTAINER  the environment of a container of the image apache/kafka, NAME=value a line: the one node then runs
#             under the properties that the image makes of it, and nothing else; KAFKA_PORT is one of those it listens on
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=${KAFKA_VERSION:-4.4.0}
dir=${KAFKA_DIR:-/tmp/kafka-local}
jars=${KAFKA_JARS:-$HOME/.cache/kafka-local/$version}
port=${KAFKA_PORT:-19092}
heap=${KAFKA_HEAP:-512m}
quick="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
jvm=${KAFKA_JVM-$quick}
detach=$(command -v setsid || true) # a Ctrl-C in the terminal must not reach the nodes

die() { echo "kafka.sh: $*" >&2; exit 1; }
java_() { java $quick -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$jars/*" "$@"; }

# Whoever comes first downloads; the rest find the finished directory. mv puts it there in one step, so that nobody sees
# half of it, and of two that downloaded at the same time one throws its copy away.
fetch() {
  [ -e "$jars/.complete" ] && return
  command -v mvn > /dev/null || die "Maven is needed once, to download the jars to $jars"
  mkdir -p "$(dirname "$jars")"
  local tmp; tmp=$(mktemp -d "$jars.XXXXXX"); cp "$here/pom.xml" "$tmp/"
  (cd "$tmp" && mvn -q -B -Dkafka.version="$version" dependency:copy-dependencies -DoutputDirectory="$tmp/jars" -DincludeScope=runtime) >&2 ||
    { rm -rf "$tmp"; die "Maven could not download Kafka $version"; }
  touch "$tmp/jars/.complete"
  [ -e "$jars" ] && [ ! -e "$jars/.complete" ] && rm -rf "$jars"
  mv -T "$tmp/jars" "$jars" 2>/dev/null || [ -e "$jars/.complete" ] || mv "$tmp/jars" "$jars"
  rm -rf "$tmp"
}

node_port() { echo $((port + 10 * ($1 - 1))); }
pid_of() { cat "$dir/$1/pid" 2>/dev/null || die "node $1 was not started from $dir"; }
# A killed node that nobody has waited for yet is a zombie, which kill -0 takes for alive.
alive() { kill -0 "$1" 2>/dev/null && ! grep -qs '^State:[[:space:]]*Z' "/proc/$1/status"; }
listens() { (echo > "/dev/tcp/127.0.0.1/$(node_port "$1")") 2>/dev/null; }
complain() { { grep -E 'ERROR|FATAL|Exception' "$1" || tail -n 5 "$1"; } | head -n 5 >&2; } # LOG
cluster_id() { head -c 16 /dev/urandom | base64 | tr '+/' 'Ak' | cut -c 1-22; }

configure() { # NODE NODES
  local n=$1 nodes=$2 p rf voters="" i; p=$(node_port "$n"); rf=$nodes
  for i in $(seq 1 "$nodes"); do voters+="$i@127.0.0.1:$(($(node_port "$i") + 1)),"; done
  mkdir -p "$dir/$n"
  cat > "$dir/$n/server.properties" <<P
process.roles=broker,controller
node.id=$n
controller.quorum.voters=${voters%,}
listeners=PLAINTEXT://127.0.0.1:$p,CONTROLLER://127.0.0.1:$((p + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$p
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs=$dir/$n/data
default.replication.factor=$rf
min.insync.replicas=$((rf > 1 ? 2 : 1))
offsets.topic.replication.factor=$rf
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=$rf
transaction.state.log.min.isr=$((rf > 1 ? 2 : 1))
transaction.state.log.num.partitions=8
share.coordinator.state.topic.replication.factor=$rf
share.coordinator.state.topic.min.isr=$((rf > 1 ? 2 : 1))
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
broker.session.timeout.ms=6000
P
  [ -z "${KAFKA_CA:-}" ] || secure "$p" "$dir/$n" >> "$dir/$n/server.properties"
  echo "${KAFKA_PROPS:-}" >> "$dir/$n/server.properties"
}

# A later line of a properties file wins.
secure() { # PORT DIR
  (umask 077; echo "$KAFKA_CERT" > "$2/broker.pem"; echo "$KAFKA_CA" > "$2/ca.pem")
  cat <<P
listeners=PLAINTEXT://127.0.0.1:$1,CONTROLLER://127.0.0.1:$(($1 + 1)),SASL_SSL://127.0.0.1:$(($1 + 2)),SSL://127.0.0.1:$(($1 + 3))
advertised.listeners=PLAINTEXT://127.0.0.1:$1,SASL_SSL://127.0.0.1:$(($1 + 2)),SSL://127.0.0.1:$(($1 + 3))
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
ssl.keystore.type=PEM
ssl.keystore.location=$2/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location=$2/ca.pem
listener.name.ssl.ssl.client.auth=required
listener.name.ssl.ssl.principal.mapping.rules=RULE:^CN=([^,]+).*\$/\$1/
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_app="app-secret" user_other="other-secret";
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
P
}

# The image's own code, which is in Kafka's jar, turns the variables into server.properties and formats the storage.
contain() {
  local line vars=()
  while IFS= read -r line; do [ -n "$line" ] && vars+=("$line"); done <<< "$KAFKA_CONTAINER"
  mkdir -p "$dir/1/image"
  # shellcheck disable=SC2086 # names are words; our own variables begin like the image's
  (unset ${!KAFKA_@}; export "${vars[@]}"
    java_ kafka.docker.KafkaDockerWrapper setup -D "$dir/1/image" -M "$dir/1/image" -F "$dir/1") > "$dir/1/format.log" 2>&1 ||
    { complain "$dir/1/format.log"; die "the image's setup failed"; }
}

format() { # NODE CLUSTER_ID
  java_ kafka.tools.StorageTool format -t "$2" -c "$dir/$1/server.properties" > "$dir/$1/format.log" 2>&1 ||
    { complain "$dir/$1/format.log"; return 1; }
}

launch() { # NODE
  local n=$1
  # shellcheck disable=SC2086 # options are words
  $detach java $jvm -Xms128m -Xmx"$heap" -Dorg.slf4j.simpleLogger.defaultLogLevel=info -cp "$jars/*" kafka.Kafka "$dir/$n/server.properties" >> "$dir/$n/log" 2>&1 < /dev/null &
  echo $! > "$dir/$n/pid"
}

wait_up() { # NODE
  local n=$1 i
  for i in $(seq 1 1200); do
    grep -q 'Kafka Server started' "$dir/$n/log" 2>/dev/null && listens "$n" && return
    alive "$(pid_of "$n")" || { complain "$dir/$n/log"; die "node $n ended while starting"; }
    sleep 0.1
  done
  complain "$dir/$n/log"
  die "node $n is not up after two minutes"
}

start() {
  local nodes=${1:-1} n id formats=() list=""
  case $nodes in 1|3) ;; *) die "1 or 3 nodes" ;; esac
  [ -e "$dir/1/pid" ] && alive "$(cat "$dir/1/pid")" && die "already running from $dir: stop it first"
  command -v java > /dev/null || die "Java 17 is needed"
  fetch
  rm -rf "$dir"; mkdir -p "$dir"
  id=$(cluster_id)
  if [ -n "${KAFKA_CONTAINER:-}" ]; then
    contain
  else
    for n in $(seq 1 "$nodes"); do configure "$n" "$nodes"; format "$n" "$id" & formats+=($!); done
    for n in "${formats[@]}"; do wait "$n" || die "formatting the storage failed"; done
  fi
  for n in $(seq 1 "$nodes"); do launch "$n"; done
  for n in $(seq 1 "$nodes"); do wait_up "$n"; list+="127.0.0.1:$(node_port "$n"),"; done
  echo "${list%,}"
}

end() { # PID: SIGKILL, and wait for the end; a paused process takes it too
  local i
  kill -KILL "$1" 2>/dev/null || return 0
  for i in $(seq 1 100); do alive "$1" || return 0; sleep 0.05; done
}

# The first thread of a killed JVM is gone before the last one lets go of the sockets.
kill_node() { # NODE
  local i
  end "$(pid_of "$1")"
  for i in $(seq 1 200); do listens "$1" || return 0; sleep 0.05; done
  die "node $1 is killed and its port still open"
}

stop() {
  local f
  for f in "$dir"/*/pid; do
    [ -e "$f" ] || continue
    end "$(cat "$f")"
    rm -f "$f"
  done
}

# The end of the input comes with the end of whoever started us, whatever ended them.
hold() {
  trap 'stop; rm -rf "$dir"' EXIT
  trap '' INT TERM HUP
  start "${1:-1}"
  cat > /dev/null
}

case ${1:-} in
  start) start "${2:-1}" ;;
  hold) hold "${2:-1}" ;;
  stop) stop ;;
  kill) kill_node "$2" ;;
  pause) kill -STOP "$(pid_of "$2")" ;;
  resume) kill -CONT "$(pid_of "$2")" ;;
  restart) alive "$(pid_of "$2")" && die "node $2 runs: kill it first"; : > "$dir/$2/log"; launch "$2"; wait_up "$2" ;;
  fetch) fetch ;;
  tool) fetch; shift; class=$1; shift; java_ "org.apache.kafka.tools.$class" "$@" ;;
  java) fetch; shift; exec java $quick -Xmx128m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$jars/*" "$@" ;; # exec: a kill is the program's
  *) sed -n '2,25p' "$0"; exit 2 ;;
esac
