#!/bin/sh
# One clear line when the Java that Spark needs is missing or too old.
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
if [ "${version:-0}" -lt 17 ]; then
  echo "homing: Spark needs Java 17 or newer and found ${version:-none}; on Debian: apt-get install openjdk-17-jre-headless" >&2
  exit 69
fi
