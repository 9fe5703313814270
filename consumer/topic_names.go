package consumer

import (
	"fmt"
	"regexp"
)

// maxTopic is how long a topic's name may be in Kafka.
const maxTopic = 249

// topicName is what Kafka takes for one. A broker asked for another answers that it does not know the topic.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// topicProblems finds what is wrong with the topics that a route names.
func (s spec) topicProblems(of string) []Problem {
	letters := s.options.DeadLetterTopic
	switch {
	case s.topic == "":
		return []Problem{{What: of + " has no Topic", Fix: fmt.Sprintf("set %s.Topic", s.kind)}}
	case impossibleTopic(s.topic) != "":
		return []Problem{impossible(of+": Topic", s.topic)}
	case letters == "":
		return []Problem{{
			What: fmt.Sprintf("%s consumes %q, itself a dead letter topic, and has no DeadLetterTopic", of, s.topic),
			Fix:  "name one: it must not be its own input",
		}}
	case s.namesLetters && impossibleTopic(letters) != "":
		return []Problem{impossible(of+": DeadLetterTopic", letters)}
	}
	return nil // a name that is too long only with a suffix is told with the longest of them, the replay topic's
}

func impossible(field, name string) Problem {
	return Problem{
		What: fmt.Sprintf("%s is %q, which %s", field, name, impossibleTopic(name)),
		Fix:  fmt.Sprintf("name a topic that Kafka can have: at most %d of the characters a-z, A-Z, 0-9, '.', '_' and '-'", maxTopic),
	}
}

// impossibleTopic says why Kafka cannot have a topic of that name; "" if it can.
func impossibleTopic(name string) string {
	switch {
	case name == ".", name == "..":
		return "Kafka keeps for itself"
	case len(name) > maxTopic:
		return fmt.Sprintf("has %d characters, Kafka takes %d", len(name), maxTopic)
	case !topicName.MatchString(name):
		return "has a character that Kafka does not take in a topic's name"
	}
	return ""
}
