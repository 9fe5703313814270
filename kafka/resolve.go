package kafka

// Resolve gives c with its defaults, or says what does not fit. It is for whoever makes another [Transport] of it.
func (c SourceConfig) Resolve() (SourceConfig, error) {
	c = c.withDefaults()
	return c, c.validate()
}
